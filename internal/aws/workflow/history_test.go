package workflow

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"holdfast/internal/aws/awstest"
	"holdfast/internal/batch"
)

const machineARN = "arn:aws:states:us-east-1:000000000000:stateMachine:holdfast"

// answers is Step Functions with one execution: an inline part whose wait was tried
// again, or a map run.
func answers(t *testing.T, children int) http.Handler {
	event := func(id int, kind, more string) string {
		return fmt.Sprintf(`{"id":%d,"previousEventId":0,"timestamp":1790000000,"type":%q%s}`, id, kind, more)
	}
	scheduled := func(kind string) string {
		return fmt.Sprintf(`,"taskScheduledEventDetails":{"resourceType":%q,"resource":"x","region":"us-east-1","parameters":""}`, kind)
	}
	pages := map[string]string{
		"": `{"events":[` + strings.Join([]string{
			event(1, "ExecutionStarted", ""), event(2, "ChoiceStateEntered", ""), event(3, "ChoiceStateExited", ""),
			event(4, "TaskStateEntered", ""), event(5, "TaskScheduled", scheduled("lambda")), event(6, "TaskSucceeded", ""),
		}, ",") + `],"nextToken":"2"}`,
		"2": `{"events":[` + strings.Join([]string{
			event(7, "MapStateEntered", ""), event(8, "MapIterationStarted", ""),
			event(9, "TaskStateEntered", ""), event(10, "TaskScheduled", scheduled("sqs")), event(11, "TaskTimedOut", ""),
			event(12, "TaskScheduled", scheduled("sqs")), event(13, "TaskSucceeded", ""),
		}, ",") + `]}`,
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in struct{ ExecutionArn, NextToken, MapRunArn string }
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		_, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
		switch {
		case op == "DescribeExecution" && !strings.HasSuffix(in.ExecutionArn, ":execution:holdfast:batch_a"):
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"__type":"ExecutionDoesNotExist","message":"no"}`)
		case op == "DescribeExecution":
			fmt.Fprint(w, `{"executionArn":"x","stateMachineArn":"y","status":"SUCCEEDED","startDate":1790000000,"stopDate":1790000060,"input":"{\"v\":1,\"tenant\":\"acme\",\"batch\":\"batch_a\"}"}`)
		case op == "GetExecutionHistory":
			fmt.Fprint(w, pages[in.NextToken])
		case op == "ListMapRuns" && children == 0:
			fmt.Fprint(w, `{"mapRuns":[]}`)
		case op == "ListMapRuns":
			fmt.Fprint(w, `{"mapRuns":[{"executionArn":"x","mapRunArn":"m","stateMachineArn":"y","startDate":1790000000}]}`)
		case op == "DescribeMapRun":
			fmt.Fprintf(w, `{"mapRunArn":"m","executionArn":"x","status":"SUCCEEDED","startDate":1790000000,"maxConcurrency":0,"toleratedFailurePercentage":100,"toleratedFailureCount":0,`+
				`"itemCounts":{"total":%[1]d},"executionCounts":{"total":%[1]d,"succeeded":%[1]d}}`, children)
		default:
			t.Errorf("unexpected %s", op)
		}
	})
}

func TestHistory(t *testing.T) {
	for name, c := range map[string]struct {
		children              int
		transitions, messages int
	}{
		// Choice, Task, Map, Task, and the second try of the wait.
		"inline":      {0, 5, 2},
		"distributed": {60, 5 + 2*60, 2 + 60},
	} {
		t.Run(name, func(t *testing.T) {
			h := NewHistory(awstest.Server(t, answers(t, c.children)), machineARN)
			e, err := h.Execution(t.Context(), "batch_a")
			if err != nil {
				t.Fatal(err)
			}
			if e.Transitions != c.transitions || e.Messages != c.messages || e.Children != c.children {
				t.Errorf("counted %+v", e)
			}
			if e.Tenant != "acme" || e.Batch != "batch_a" || e.Ended.Sub(e.Started).Seconds() != 60 {
				t.Errorf("execution %+v", e)
			}
			if _, err := h.Execution(t.Context(), "batch_b"); !errors.Is(err, batch.ErrNotFound) {
				t.Errorf("an unknown execution: %v", err)
			}
		})
	}
}

package main

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/config"
)

// deployed returns the definition as it is deployed, with every name filled in.
func deployed(t *testing.T, s *synthesized) object {
	t.Helper()
	machine := s.only(t, "AWS::StepFunctions::StateMachine", "").Properties
	text := plain(machine["DefinitionString"])
	for name := range machine["DefinitionSubstitutions"].(object) {
		value := map[string]string{
			"Partition":      "aws",
			"PlanFunction":   "arn:aws:lambda:eu-west-1:123456789012:function:plan",
			"FinishFunction": "arn:aws:lambda:eu-west-1:123456789012:function:finish",
			"WorkQueueUrl":   "https://sqs.eu-west-1.amazonaws.com/123456789012/work",
		}[name]
		text = strings.ReplaceAll(text, "${"+name+"}", value)
	}
	if strings.Contains(text, "${") {
		t.Fatalf("a name isn't filled in: %s", text)
	}
	var parsed object
	if err := json.Unmarshal([]byte(text), &parsed); err != nil {
		t.Fatal(err)
	}
	return parsed
}

func stateNamed(t *testing.T, definition object, name string) object {
	t.Helper()
	found, ok := definition["States"].(object)[name].(object)
	if !ok {
		t.Fatalf("no state %q", name)
	}
	return found
}

func TestStateMachine(t *testing.T) {
	got := account.only(t, "AWS::StepFunctions::StateMachine", "").Properties
	same(t, "type", got["StateMachineType"], "STANDARD")
	logging := got["LoggingConfiguration"].(object)
	same(t, "logging", []any{logging["Level"], logging["IncludeExecutionData"]}, []any{"ALL", false})
	if role := plain(got["RoleArn"]); role != "${WorkflowRole.Arn}" {
		t.Errorf("runs as %s", role)
	}
	names := map[string]string{}
	for name, value := range got["DefinitionSubstitutions"].(object) {
		names[name] = plain(value)
	}
	same(t, "names", names, map[string]string{
		"Partition": "${AWS::Partition}", "PlanFunction": "${Plan.Arn}", "FinishFunction": "${Finish.Arn}", "WorkQueueUrl": "${WorkQueue}",
	})
}

var serviceRetry = object{
	"IntervalSeconds": 2, "BackoffRate": 2, "MaxAttempts": 8, "MaxDelaySeconds": 60, "JitterStrategy": "FULL",
}

func withErrors(retry object, errors ...any) object {
	retry = maps.Clone(retry)
	retry["ErrorEquals"] = errors
	return retry
}

func TestPlanAndFinishStates(t *testing.T) {
	definition := deployed(t, &account)
	same(t, "start", []any{definition["StartAt"], definition["TimeoutSeconds"]}, []any{"Only to finish?", 345_600})
	same(t, "Only to finish?", stateNamed(t, definition, "Only to finish?"), object{
		"Type": "Choice",
		"Choices": []any{object{"And": []any{
			object{"Variable": "$.finish", "IsPresent": true}, object{"Variable": "$.finish", "BooleanEquals": true},
		}, "Next": "Finish"}},
		"Default": "Plan",
	})
	retry := []any{
		object{"ErrorEquals": []any{"Holdfast.Permanent"}, "MaxAttempts": 0},
		object{"ErrorEquals": []any{"Holdfast.Draining"}, "IntervalSeconds": 3, "BackoffRate": 1, "MaxAttempts": 60},
		object{"ErrorEquals": []any{"Holdfast.Continue"}, "IntervalSeconds": 1, "BackoffRate": 1, "MaxAttempts": 200},
		object{"ErrorEquals": []any{"Holdfast.Held"}, "IntervalSeconds": 15, "BackoffRate": 1, "MaxAttempts": 13},
		withErrors(serviceRetry, "Lambda.ServiceException", "Lambda.AWSLambdaException", "Lambda.SdkClientException",
			"Lambda.ClientExecutionTimeoutException", "Lambda.TooManyRequestsException"),
		object{"ErrorEquals": []any{"States.ALL"}, "IntervalSeconds": 10, "BackoffRate": 3, "MaxAttempts": 3, "MaxDelaySeconds": 120, "JitterStrategy": "FULL"},
	}
	same(t, "Plan", stateNamed(t, definition, "Plan"), object{
		"Type": "Task", "Resource": "arn:aws:states:::lambda:invoke", "OutputPath": "$.Payload", "TimeoutSeconds": 960,
		"Parameters": object{
			"FunctionName": "arn:aws:lambda:eu-west-1:123456789012:function:plan",
			"Payload":      object{"v.$": "$.v", "tenant.$": "$.tenant", "batch.$": "$.batch", "wide": true},
		},
		"Retry": retry, "Next": "Planned?",
	})
	same(t, "Planned?", stateNamed(t, definition, "Planned?"), object{
		"Type": "Choice",
		"Choices": []any{
			object{"And": []any{
				object{"Variable": "$.status", "StringEquals": "planned"},
				object{"Variable": "$.wide", "IsPresent": true}, object{"Variable": "$.wide", "BooleanEquals": true},
			}, "Next": "Many parts"},
			object{"Variable": "$.status", "StringEquals": "planned", "Next": "Parts"},
			object{"Variable": "$.status", "StringEquals": "ended", "Next": "Finish"},
			object{"Variable": "$.status", "StringEquals": "failed", "Next": "Nothing to run"},
		},
		"Default": "Not understood",
	})
	same(t, "Not understood", stateNamed(t, definition, "Not understood"), object{
		"Type": "Fail", "Error": "Holdfast.Status", "Cause": "plan answered with a status that this definition doesn't know",
	})
	same(t, "Nothing to run", stateNamed(t, definition, "Nothing to run"), object{"Type": "Succeed"})
	same(t, "Finish", stateNamed(t, definition, "Finish"), object{
		"Type": "Task", "Resource": "arn:aws:states:::lambda:invoke", "OutputPath": "$.Payload", "TimeoutSeconds": 960,
		"Parameters": object{
			"FunctionName": "arn:aws:lambda:eu-west-1:123456789012:function:finish",
			"Payload":      object{"v": 1, "tenant.$": "$.tenant", "batch.$": "$.batch"},
		},
		"Retry": retry, "End": true,
	})
}

// Both Maps run the same for each part; they differ in where parts come from and
// in what executes them. The reader's InputType is asserted here because
// asl-validator takes any.
func TestParts(t *testing.T) {
	for _, c := range []struct {
		stack                              *synthesized
		heartbeat, timeout, again, waiting int
	}{{&account, 21_600, 172_800, 8, 200}, {&local, 3_600, 108_000, 30, 70}} {
		definition := deployed(t, c.stack)
		each := object{
			"Type": "Map", "ResultPath": nil, "Next": "Finish",
			"ItemSelector": object{"tenant.$": "$.tenant", "batch.$": "$.batch", "part.$": "$$.Map.Item.Value.part"},
		}
		processor := func(name string, config object) object {
			return object{
				"ProcessorConfig": config,
				"StartAt":         name,
				"States": object{name: object{
					"Type": "Task", "Resource": "arn:aws:states:::sqs:sendMessage.waitForTaskToken",
					"Parameters": object{
						"QueueUrl":         "https://sqs.eu-west-1.amazonaws.com/123456789012/work",
						"MessageGroupId.$": "$.tenant",
						"MessageBody": object{
							"v": 1, "tenant.$": "$.tenant", "batch.$": "$.batch", "part.$": "$.part", "task_token.$": "$$.Task.Token",
						},
					},
					"HeartbeatSeconds": c.heartbeat, "TimeoutSeconds": c.timeout,
					"Retry": []any{
						object{
							"ErrorEquals":     []any{"States.Timeout", "States.HeartbeatTimeout"},
							"IntervalSeconds": 1, "BackoffRate": 1, "MaxAttempts": c.again, "JitterStrategy": "FULL",
						},
						withErrors(serviceRetry, "SQS.AmazonSQSException", "SQS.SqsException", "SQS.SdkClientException"),
					},
					"OutputPath": nil, "End": true,
				}},
			}
		}
		inline := maps.Clone(each)
		maps.Copy(inline, object{
			"ItemsPath": "$.parts", "MaxConcurrency": 40, "ItemProcessor": processor("Part", object{"Mode": "INLINE"}),
		})
		same(t, "Parts", stateNamed(t, definition, "Parts"), inline)
		wide := maps.Clone(each)
		maps.Copy(wide, object{
			"Label": "parts", "MaxConcurrency": c.waiting, "ToleratedFailurePercentage": 100,
			"ItemReader": object{
				"Resource": "arn:aws:states:::s3:getObject", "ReaderConfig": object{"InputType": "JSONL"},
				"Parameters": object{"Bucket.$": "$.plan.bucket", "Key.$": "$.plan.key"},
			},
			"ItemProcessor": processor("Part of many", object{"Mode": "DISTRIBUTED", "ExecutionType": "STANDARD"}),
			"Retry":         []any{withErrors(serviceRetry, "States.ItemReaderFailed")},
			"Catch":         []any{object{"ErrorEquals": []any{"States.DataLimitExceeded"}, "ResultPath": nil, "Next": "Finish"}},
		})
		same(t, "Many parts", stateNamed(t, definition, "Many parts"), wide)
	}
}

// Whatever plan may answer is named by the Choice: its default is for what this
// release doesn't know, and no success.
func TestEveryAnswerOfPlanIsNamed(t *testing.T) {
	named := map[any]bool{}
	for _, c := range definition(config.Default())["States"].(state)["Planned?"].(state)["Choices"].([]state) {
		named[c["StringEquals"]] = true
	}
	for _, status := range []batch.PlanStatus{batch.Planned, batch.Refused, batch.NotToRun} {
		if !named[string(status)] {
			t.Errorf("no choice for %q", status)
		}
	}
}

// Plan and the workflow must agree on what is too wide for a list, and each part
// that runs must find a worker's place waiting for it, however many workers there
// may be: Step Functions runs 10,000 children at once.
func TestWidth(t *testing.T) {
	same(t, "parts in a list", inlineParts, batch.InlineParts)
	for _, workers := range []int{2, 20, 1000} {
		s := config.Default()
		s.MaxConcurrency = workers
		// Eight parts in hand a worker, all but done, and two on their way to it.
		if n := s.Waiting(); n < 10*workers || n < inlineParts || n > 10_000 {
			t.Errorf("%d workers, and %d parts wait", workers, n)
		}
	}
}

// What the children of the widest batch answer, {} each, fits a state.
func TestAnswersFitAState(t *testing.T) {
	const state = 256 << 10
	if n := len("[]") + config.MaxParts*len("{},"); n > state {
		t.Errorf("%d parts answer with %d bytes", config.MaxParts, n)
	}
}

// A Lambda that runs its whole life must not be given up by its state, and the
// workflow must outlive the waits within it.
func TestTimesNest(t *testing.T) {
	for _, s := range []*synthesized{&account, &local} {
		definition := deployed(t, s)
		for _, name := range []string{"Plan", "Finish"} {
			if state, function := stateNamed(t, definition, name)["TimeoutSeconds"].(float64), s.lambda(t, name)["Timeout"].(float64); state <= function {
				t.Errorf("%s: state gives up after %v s, the function after %v s", name, state, function)
			}
		}
		if machine := definition["TimeoutSeconds"].(float64); machine <= s.opts.settings.WaitTimeout.Seconds() {
			t.Errorf("the workflow ends after %v s, a wait after %v", machine, s.opts.settings.WaitTimeout)
		}
	}
}

// However long workers may drain, the workflow comes back once they must have.
func TestDrainingIsOutlasted(t *testing.T) {
	for _, drain := range []time.Duration{time.Second, 2 * time.Minute, 10 * time.Minute} {
		s := config.Default()
		s.Drain = drain
		for _, retry := range definition(s)["States"].(state)["Finish"].(state)["Retry"].([]state) {
			if errors, _ := retry["ErrorEquals"].([]string); len(errors) == 1 && errors[0] == "Holdfast.Draining" {
				if waits := time.Duration(retry["MaxAttempts"].(int)*retry["IntervalSeconds"].(int)) * time.Second; waits < drain+30*time.Second {
					t.Errorf("workers drain for %s, and the workflow waits for %s", drain, waits)
				}
			}
		}
	}
}

// validate runs asl-validator and returns what it says; ok is its verdict.
func validate(t *testing.T, definition object) (output string, ok bool) {
	t.Helper()
	modules := os.Getenv("HOLDFAST_NODE_MODULES")
	if modules == "" {
		modules = filepath.Join("..", ".local", "tools", "node_modules")
	}
	validator := filepath.Join(modules, "asl-validator", "dist", "bin", "asl-validator.js")
	if _, err := os.Stat(validator); err != nil {
		t.Fatalf("asl-validator isn't installed (%v): run it through make test, or name the folder in HOLDFAST_NODE_MODULES", err)
	}
	file := filepath.Join(t.TempDir(), "definition.json")
	text, err := json.Marshal(definition)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("node", validator, "--json-path", file).CombinedOutput()
	return string(out), err == nil
}

func TestDefinitionIsValid(t *testing.T) {
	if out, ok := validate(t, deployed(t, &account)); !ok {
		t.Errorf("asl-validator refuses the definition:\n%s", out)
	}
}

func TestValidatorRefusesBrokenDefinitions(t *testing.T) {
	for name, spoil := range map[string]func(object){
		"a state that isn't there": func(d object) { stateNamed(t, d, "Plan")["Next"] = "Elsewhere" },
		"a state nobody reaches":   func(d object) { d["States"].(object)["Lost"] = object{"Type": "Succeed"} },
		"a negative timeout":       func(d object) { stateNamed(t, d, "Plan")["TimeoutSeconds"] = -1 },
		"a part with no way on": func(d object) {
			processor := stateNamed(t, d, "Many parts")["ItemProcessor"].(object)
			delete(stateNamed(t, processor, "Part of many"), "End")
		},
		"a distributed Map of another kind": func(d object) {
			stateNamed(t, d, "Many parts")["ItemProcessor"].(object)["ProcessorConfig"].(object)["ExecutionType"] = "SLOW"
		},
	} {
		definition := deployed(t, &account)
		spoil(definition)
		if out, ok := validate(t, definition); ok || !strings.Contains(out, "nvalid") {
			t.Errorf("%s: accepted, or refused for another reason:\n%s", name, out)
		}
	}
}

// The definition is a function of the settings alone, so that one person can read
// it without deploying anything.
func TestDefinitionFollowsTheSettings(t *testing.T) {
	s := config.Default()
	text, err := json.Marshal(definition(s))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), `"HeartbeatSeconds":21600`) {
		t.Errorf("%s", text)
	}
	if size := len(text); size > 64<<10 {
		t.Errorf("%d bytes; the API takes 1 MB and a person less", size)
	}
}

// A finisher that dies holds the batch for a lease; the workflow must outwait
// it, whatever the lease is.
func TestFinishOutwaitsALease(t *testing.T) {
	for _, lease := range []time.Duration{2 * time.Second, 2 * time.Minute, 10 * time.Minute, 12 * time.Hour} {
		s := config.Default()
		s.Lease = lease
		for _, retry := range definition(s)["States"].(state)["Finish"].(state)["Retry"].([]state) {
			if retry["ErrorEquals"].([]string)[0] != "Holdfast.Held" {
				continue
			}
			if wait := time.Duration(retry["IntervalSeconds"].(int)*retry["MaxAttempts"].(int)) * time.Second; wait <= s.Lease+s.Skew {
				t.Errorf("lease %v: held is tried again for %v only", lease, wait)
			}
		}
	}
}

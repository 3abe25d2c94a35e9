package logs

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"holdfast/internal/aws/awstest"
)

func TestFind(t *testing.T) {
	from, to := time.UnixMilli(1_790_000_000_000), time.UnixMilli(1_790_000_100_000)
	asked := 0
	l := New(awstest.Server(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			LogGroupName, FilterPattern, NextToken string
			StartTime, EndTime                     int64
		}
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "application/x-amz-json-1.1")
		if in.LogGroupName != "/holdfast/work" {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"__type":"ResourceNotFoundException","message":"no"}`)
			return
		}
		if in.FilterPattern != `"batch_a" "usage"` || in.StartTime != from.UnixMilli() || in.EndTime != to.UnixMilli() {
			t.Errorf("asked for %+v", in)
		}
		asked++
		// A page may be empty and have a next one.
		fmt.Fprint(w, map[string]string{
			"":  `{"events":[{"message":"one"}],"nextToken":"2"}`,
			"2": `{"events":[],"nextToken":"3"}`,
			"3": `{"events":[{"message":"two"},{"message":"three"}]}`,
		}[in.NextToken])
	})))
	var got []string
	for line, err := range l.Find(t.Context(), "/holdfast/work", from, to, "batch_a", "usage") {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, line)
	}
	if fmt.Sprint(got) != "[one two three]" || asked != 3 {
		t.Errorf("%v in %d pages", got, asked)
	}
	for range l.Find(t.Context(), "/holdfast/work", from, to, "batch_a", "usage") {
		break // who has seen enough asks for no more
	}
	if asked != 4 {
		t.Errorf("%d pages", asked)
	}
	for _, err := range l.Find(t.Context(), "/other/work", from, to, "batch_a") {
		if !errors.Is(err, ErrNoGroup) {
			t.Errorf("an unknown group: %v", err)
		}
	}
}

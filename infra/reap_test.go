package main

import "testing"

// The reaper's two rules: the local AWS checks neither a rule's right to call the
// function nor how long an event may wait.
func TestReapRules(t *testing.T) {
	rule := func(name string) object { return account.only(t, "AWS::Events::Rule", name).Properties }
	tick := rule("ReapTick")
	same(t, "tick", []any{tick["ScheduleExpression"], tick["State"], tick["EventPattern"]}, []any{"rate(1 minute)", "ENABLED", nil})
	target := list(tick["Targets"])[0].(object)
	same(t, "a late tick", target["RetryPolicy"], object{"MaximumEventAgeInSeconds": 60, "MaximumRetryAttempts": 0})

	fallen := rule("ReapFallen")
	pattern := fallen["EventPattern"].(object)
	detail := pattern["detail"].(object)
	same(t, "pattern", []any{pattern["source"], pattern["detail-type"], detail["status"], fallen["State"], fallen["ScheduleExpression"]},
		[]any{[]string{"aws.states"}, []string{"Step Functions Execution Status Change"}, []string{"FAILED", "TIMED_OUT", "ABORTED"}, "ENABLED", nil})
	if got := list(detail["stateMachineArn"]); len(got) != 1 || plain(got[0]) != "${Workflow}" {
		t.Errorf("executions of %v", got)
	}
	same(t, "an event that finds no function", list(fallen["Targets"])[0].(object)["RetryPolicy"], object{"MaximumEventAgeInSeconds": 600, "MaximumRetryAttempts": 3})

	for _, r := range []object{tick, fallen} {
		if targets := list(r["Targets"]); len(targets) != 1 || plain(targets[0].(object)["Arn"]) != "${Reap.Arn}" {
			t.Errorf("targets %v", targets)
		}
	}
}

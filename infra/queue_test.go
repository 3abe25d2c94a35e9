package main

import (
	"maps"
	"testing"
)

func TestWorkQueue(t *testing.T) {
	account.has(t, "AWS::SQS::Queue", object{
		"VisibilityTimeout": 900, "MessageRetentionPeriod": 1_209_600, "SqsManagedSseEnabled": true,
		"RedrivePolicy": object{"maxReceiveCount": 1_000},
	})
	work := local.only(t, "AWS::SQS::Queue", "WorkQueue").Properties
	same(t, "visibility is the function's timeout", work["VisibilityTimeout"], 300)
	same(t, "retention", work["MessageRetentionPeriod"], 345_600)
	if got := plain(work["RedrivePolicy"].(object)["deadLetterTargetArn"]); got != "${DeadLetters.Arn}" {
		t.Errorf("dead letters go to %s", got)
	}
	same(t, "receives", work["RedrivePolicy"].(object)["maxReceiveCount"], 50)

	dead := local.only(t, "AWS::SQS::Queue", "DeadLetters").Properties
	same(t, "dead letters", dead, object{"MessageRetentionPeriod": 1_209_600, "SqsManagedSseEnabled": true, "VisibilityTimeout": 5})
}

// The local AWS enforces no queue policy, so they are held here.
func TestQueuePolicies(t *testing.T) {
	for _, name := range []string{"WorkQueue", "DeadLetters"} {
		policy := account.only(t, "AWS::SQS::QueuePolicy", name).Properties
		want := "Deny * sqs:* on ${" + name + ".Arn} if {\"Bool\":{\"aws:SecureTransport\":\"false\"}}"
		if got := statements(policy["PolicyDocument"]); got != want {
			t.Errorf("%s\n got %s\nwant %s", name, got, want)
		}
		if queues := list(policy["Queues"]); len(queues) != 1 || plain(queues[0]) != "${"+name+"}" {
			t.Errorf("%s policy is for %v", name, queues)
		}
	}
}

func TestEventSource(t *testing.T) {
	source := account.only(t, "AWS::Lambda::EventSourceMapping", "WorkEvents")
	got := maps.Clone(source.Properties)
	if plain(got["EventSourceArn"]) != "${WorkQueue.Arn}" || plain(got["FunctionName"]) != "${Work}" {
		t.Errorf("source %s, function %s", plain(got["EventSourceArn"]), plain(got["FunctionName"]))
	}
	delete(got, "EventSourceArn")
	delete(got, "FunctionName")
	same(t, "event source", got, object{
		"BatchSize": 1, "FunctionResponseTypes": []any{"ReportBatchItemFailures"},
		"ScalingConfig": object{"MaximumConcurrency": 20},
	})
	waits := false
	for _, id := range list(source.DependsOn) {
		waits = waits || cut(id.(string)) == "WorkRoleDefaultPolicy"
	}
	if !waits {
		t.Errorf("made before the role's policy: depends on %v", source.DependsOn)
	}
	same(t, "maximum concurrency", local.only(t, "AWS::Lambda::EventSourceMapping", "WorkEvents").Properties["ScalingConfig"],
		object{"MaximumConcurrency": 7})
}

func TestNoReservedConcurrency(t *testing.T) {
	for id, r := range account.resources {
		if r.Type == "AWS::Lambda::Function" && r.Properties["ReservedConcurrentExecutions"] != nil {
			t.Errorf("%s reserves concurrency", id)
		}
	}
}

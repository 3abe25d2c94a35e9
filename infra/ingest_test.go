package main

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"holdfast/internal/config"
)

// The inputs bucket tells EventBridge of its objects, the results bucket nobody:
// no result can start a batch.
func TestOnlyInputsAreAnnounced(t *testing.T) {
	same(t, "inputs", account.only(t, "AWS::S3::Bucket", "Inputs").Properties["NotificationConfiguration"],
		object{"EventBridgeConfiguration": object{"EventBridgeEnabled": true}})
	same(t, "results", account.only(t, "AWS::S3::Bucket", "Results").Properties["NotificationConfiguration"], nil)
}

func TestDropRule(t *testing.T) {
	rule := account.only(t, "AWS::Events::Rule", "Dropped").Properties
	pattern := rule["EventPattern"].(object)
	same(t, "pattern", []any{pattern["source"], pattern["detail-type"], rule["State"], rule["ScheduleExpression"], len(pattern)},
		[]any{[]string{"aws.s3"}, []string{"Object Created"}, "ENABLED", nil, 3})
	detail := pattern["detail"].(object)
	if names := list(detail["bucket"].(object)["name"]); len(names) != 1 || plain(names[0]) != "${Inputs}" {
		t.Errorf("objects of %v", names)
	}
	same(t, "keys", detail["object"], object{"key": []any{object{"prefix": "in/"}}})
	targets := list(rule["Targets"])
	if len(targets) != 1 || plain(targets[0].(object)["Arn"]) != "${IngestQueue.Arn}" {
		t.Fatalf("targets %v", targets)
	}
	target := targets[0].(object)
	same(t, "an event that the queue doesn't take", target["RetryPolicy"], object{"MaximumEventAgeInSeconds": 86400, "MaximumRetryAttempts": 185})
	if got := plain(target["DeadLetterConfig"].(object)["Arn"]); got != "${IngestDeadLetters.Arn}" {
		t.Errorf("in the end it goes to %s", got)
	}
	if target["Input"] != nil || target["InputPath"] != nil || target["InputTransformer"] != nil {
		t.Errorf("the event is changed on its way: %v", target)
	}
}

func TestIngestQueue(t *testing.T) {
	queue := maps.Clone(account.only(t, "AWS::SQS::Queue", "IngestQueue").Properties)
	redrive := queue["RedrivePolicy"].(object)
	if got := plain(redrive["deadLetterTargetArn"]); got != "${IngestDeadLetters.Arn}" {
		t.Errorf("dead letters go to %s", got)
	}
	// 200 and 20 by the settings: the function has some more to leave word by.
	same(t, "receives", redrive["maxReceiveCount"], 205)
	delete(queue, "RedrivePolicy")
	same(t, "queue", queue, object{"MessageRetentionPeriod": 604_800, "SqsManagedSseEnabled": true, "VisibilityTimeout": 60})
	same(t, "dead letters", account.only(t, "AWS::SQS::Queue", "IngestDeadLetters").Properties,
		object{"MessageRetentionPeriod": 1_209_600, "SqsManagedSseEnabled": true})
	same(t, "receives, when set", local.only(t, "AWS::SQS::Queue", "IngestQueue").Properties["RedrivePolicy"].(object)["maxReceiveCount"], 25)
}

// The local AWS enforces no queue policy. Both queues take what the rule sends, by
// its ARN, and nothing from any other rule or account.
func TestIngestQueuePolicies(t *testing.T) {
	for name, want := range map[string]string{
		"IngestQueue": "sqs:SendMessage,sqs:GetQueueAttributes,sqs:GetQueueUrl", "IngestDeadLetters": "sqs:SendMessage",
	} {
		policy := account.only(t, "AWS::SQS::QueuePolicy", name).Properties
		lines := strings.Split(statements(policy["PolicyDocument"]), "\n")
		arn := " on ${" + name + ".Arn} if "
		if len(lines) != 2 || lines[0] != "Deny * sqs:*"+arn+`{"Bool":{"aws:SecureTransport":"false"}}` {
			t.Errorf("%s: %s", name, strings.Join(lines, "\n"))
		}
		if begin := "Allow events.amazonaws.com " + want + arn + `{"ArnEquals":{"aws:SourceArn":{"Fn::GetAtt":["Dropped`; !strings.HasPrefix(lines[len(lines)-1], begin) {
			t.Errorf("%s\n got %s\nwant %s…", name, lines[len(lines)-1], begin)
		}
		if queues := list(policy["Queues"]); len(queues) != 1 || plain(queues[0]) != "${"+name+"}" {
			t.Errorf("%s policy is for %v", name, queues)
		}
	}
}

func TestIngestEventSource(t *testing.T) {
	for _, c := range []struct {
		stack *synthesized
		most  int
	}{{&account, 10}, {&local, 3}} {
		source := c.stack.only(t, "AWS::Lambda::EventSourceMapping", "IngestEvents")
		got := maps.Clone(source.Properties)
		if plain(got["EventSourceArn"]) != "${IngestQueue.Arn}" || plain(got["FunctionName"]) != "${Ingest}" {
			t.Errorf("source %s, function %s", plain(got["EventSourceArn"]), plain(got["FunctionName"]))
		}
		delete(got, "EventSourceArn")
		delete(got, "FunctionName")
		same(t, "event source", got, object{
			"BatchSize": 10, "FunctionResponseTypes": []any{"ReportBatchItemFailures"},
			"ScalingConfig": object{"MaximumConcurrency": c.most},
		})
		if !slices.ContainsFunc(list(source.DependsOn), func(id any) bool { return cut(id.(string)) == "IngestRoleDefaultPolicy" }) {
			t.Errorf("made before the role's policy: depends on %v", source.DependsOn)
		}
	}
}

// Lambda refuses an event source whose queue shows a message again while the
// function may still be at it.
func TestVisibilityCoversTheFunction(t *testing.T) {
	for _, stack := range []*synthesized{&account, &local} {
		for function, queue := range map[string]string{"Ingest": "IngestQueue", "Work": "WorkQueue"} {
			visible := stack.only(t, "AWS::SQS::Queue", queue).Properties["VisibilityTimeout"].(float64)
			if timeout := stack.lambda(t, function)["Timeout"].(float64); visible < timeout {
				t.Errorf("%s runs for %v s, its queue hides for %v", function, timeout, visible)
			}
		}
	}
	same(t, "timeout with a submit of 5 s", local.lambda(t, "Ingest")["Timeout"], 45)
}

// Whoever has no use for the doors pays for none of their idling; everything else
// is there still, what was dropped before included.
func TestWithoutDoors(t *testing.T) {
	for id, r := range shut.resources {
		if strings.HasPrefix(id, "Ingest") || strings.HasPrefix(id, "Dropped") || strings.HasPrefix(id, "RefusedMessages") {
			t.Errorf("%s %s is there", r.Type, id)
		}
	}
	for name := range shut.outputs {
		if strings.HasPrefix(name, "Ingest") {
			t.Errorf("output %s is there", name)
		}
	}
	same(t, "announced", shut.only(t, "AWS::S3::Bucket", "Inputs").Properties["NotificationConfiguration"], nil)
	sources := 0
	for _, r := range shut.resources {
		if r.Type == "AWS::Lambda::EventSourceMapping" {
			sources++
		}
	}
	same(t, "polled queues", sources, 1)
	if alarms(shut)["StaleClaims"] == nil {
		t.Error("HTTP has claims as well, and no alarm of stale ones")
	}
	if got := statements(shut.only(t, "AWS::IAM::Policy", "WorkRole").Properties["PolicyDocument"]); !strings.Contains(got, "${Inputs.Arn}/in/*") {
		t.Errorf("batches that run can't be read on:\n%s", got)
	}
	// Nor need the function have been built.
	if _, err := os.Stat(account.opts.functions + "/ingest/bootstrap"); err != nil {
		t.Fatal(err)
	}
	get := vars(map[string]string{config.EnvUpstreamURL: "https://models.example.com"})
	for doors, refused := range map[string]bool{"on": false, "off": false, "ajar": true} {
		_, err := parseOptions(get, vars(map[string]string{"functions": account.opts.functions, "doors": doors}))
		if (err != nil) != refused || refused && !strings.Contains(err.Error(), "doors=ajar") {
			t.Errorf("doors=%s: %v", doors, err)
		}
	}
	for doors, missing := range map[string]bool{"on": true, "off": false} {
		_, err := parseOptions(get, vars(map[string]string{"functions": "/nowhere", "doors": doors}))
		if err == nil || strings.Contains(err.Error(), "/nowhere/ingest/bootstrap") != missing {
			t.Errorf("doors=%s without functions: %v", doors, err)
		}
	}
}

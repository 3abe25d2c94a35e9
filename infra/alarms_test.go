package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/internal/aws/metrics"
	"holdfast/internal/batch"
)

func alarms(s synthesized) map[string]object {
	found := map[string]object{}
	for _, r := range s.resources {
		if r.Type == "AWS::CloudWatch::Alarm" {
			_, name, _ := strings.Cut(r.Properties["AlarmName"].(string), "-")
			found[name] = r.Properties
		}
	}
	return found
}

func TestAlarms(t *testing.T) {
	const more, fewer = "GreaterThanOrEqualToThreshold", "LessThanThreshold"
	want := map[string][]any{
		// metric, statistic, period, periods, operator, threshold, a missing datum
		"Steals":         {"Steals", "Sum", 300, 1, more, 11, "notBreaching"},
		"DeadParts":      {"DeadParts", "Sum", 300, 1, more, 1, "notBreaching"},
		"DeadLetters":    {"ApproximateNumberOfMessagesVisible", "Maximum", 300, 1, more, 1, "notBreaching"},
		"SilentReaper":   {"Invocations", "Sum", 300, 2, fewer, 1, "breaching"},
		"FailingReaper":  {"Errors", "Sum", 300, 2, more, 4, "notBreaching"},
		"OverdueBatches": {"OverdueBatches", "Maximum", 900, 1, more, 1, "notBreaching"},
		"StaleClaims":    {"ClaimSteals", "Sum", 300, 1, more, 1, "notBreaching"},
		"RefusedReplays": {"ReplayRefused", "Sum", 300, 1, more, 10, "notBreaching"},

		"RefusedMessages": {"ApproximateNumberOfMessagesVisible", "Maximum", 300, 1, more, 1, "notBreaching"},
	}
	got := alarms(account)
	if len(got) != len(want) {
		t.Errorf("%d alarms, want %d", len(got), len(want))
	}
	for name, w := range want {
		p, ok := got[name]
		if !ok {
			t.Errorf("no alarm %s", name)
			continue
		}
		same(t, name, []any{p["MetricName"], p["Statistic"], p["Period"], p["EvaluationPeriods"], p["ComparisonOperator"], p["Threshold"], p["TreatMissingData"]}, w)
		if p["Metrics"] != nil {
			t.Errorf("%s is of metric math", name)
		}
		if !strings.HasPrefix(p["AlarmName"].(string), stackName+"-") {
			t.Errorf("%s is called %v", name, p["AlarmName"])
		}
		for actions, n := range map[string]int{"AlarmActions": 1, "OKActions": 0, "InsufficientDataActions": 0} {
			if told := list(p[actions]); len(told) != n || n == 1 && plain(told[0]) != "${Alarms}" {
				t.Errorf("%s: %s %v", name, actions, told)
			}
		}
	}
	// A lease of 10 s lapses 20 times in five minutes.
	same(t, "steals with a short lease", alarms(local)["Steals"]["Threshold"], 29)
}

// Namespace, name and dimensions are those of lines that the functions write, or
// the queue's, or those that Lambda counts of the reaper. The other half, that such lines are written, is a test on the
// deployed stack.
func TestAlarmsAreOfWhatIsWritten(t *testing.T) {
	for name, p := range alarms(account) {
		if queue := map[string]string{"DeadLetters": "DeadLetters", "RefusedMessages": "IngestDeadLetters"}[name]; queue != "" {
			d := list(p["Dimensions"])
			if p["Namespace"] != "AWS/SQS" || len(d) != 1 || d[0].(object)["Name"] != "QueueName" || plain(d[0].(object)["Value"]) != "${"+queue+".QueueName}" {
				t.Errorf("%s: namespace %v, dimensions %v", name, p["Namespace"], d)
			}
			continue
		}
		if strings.HasSuffix(name, "Reaper") {
			d := list(p["Dimensions"])
			if p["Namespace"] != "AWS/Lambda" || len(d) != 1 || d[0].(object)["Name"] != "FunctionName" || plain(d[0].(object)["Value"]) != "${Reap}" {
				t.Errorf("%s: namespace %v, dimensions %v", name, p["Namespace"], p["Dimensions"])
			}
			continue
		}
		if p["Namespace"] != metrics.Namespace || len(list(p["Dimensions"])) != 0 {
			t.Errorf("%s: namespace %v, dimensions %v", name, p["Namespace"], p["Dimensions"])
		}
		i := slices.IndexFunc(metrics.Table, func(r metrics.Row) bool { return r.Name == batch.Metric(p["MetricName"].(string)) })
		if i < 0 {
			t.Errorf("%s: nobody writes %v", name, p["MetricName"])
		}
	}
}

var heading = regexp.MustCompile(`(?m)^## (.*)$`)

// Every alarm has its page in the runbook, every page its alarm, and whoever reads
// the alarm is told of the page.
func TestRunbook(t *testing.T) {
	text, err := os.ReadFile("../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	var pages, names []string
	for _, m := range heading.FindAllStringSubmatch(string(text), -1) {
		pages = append(pages, m[1])
	}
	for name, p := range alarms(account) {
		names = append(names, name)
		if d := p["AlarmDescription"].(string); !strings.HasSuffix(d, "docs/runbook.md, "+name+".") {
			t.Errorf("%s: its description doesn't name its page: %s", name, d)
		}
	}
	slices.Sort(pages)
	slices.Sort(names)
	same(t, "pages of the runbook, and alarms", pages, names)
	sections := heading.Split(string(text), -1)[1:]
	for i, m := range heading.FindAllStringSubmatch(string(text), -1) {
		for _, question := range []string{"**What it means.**", "**Look at.**", "**Do.**", "**Harmless when.**"} {
			if !strings.Contains(sections[i], question) {
				t.Errorf("%s: nothing under %s", m[1], question)
			}
		}
	}
}

// The local AWS evaluates no topic policy.
func TestAlarmTopic(t *testing.T) {
	policy := account.only(t, "AWS::SNS::TopicPolicy", "Alarms").Properties
	text := statements(policy["PolicyDocument"])
	for _, line := range []string{
		`Deny * sns:Publish on ${Alarms} if {"Bool":{"aws:SecureTransport":"false"}}`,
		`Allow cloudwatch.amazonaws.com sns:Publish on ${Alarms} if {"ArnLike":{"aws:SourceArn":`,
	} {
		if !strings.Contains(text, line) {
			t.Errorf("no %s in\n%s", line, text)
		}
	}
	for _, condition := range []string{`":alarm:Holdfast-*"`, `"StringEquals":{"aws:SourceAccount":{"Ref":"AWS::AccountId"}}`} {
		if !strings.Contains(text, condition) {
			t.Errorf("no %s in\n%s", condition, text)
		}
	}
	if strings.Count(text, "\n") != 1 {
		t.Errorf("two statements, not\n%s", text)
	}
}

func TestAlarmEmail(t *testing.T) {
	for _, r := range account.resources {
		if r.Type == "AWS::SNS::Subscription" {
			t.Errorf("subscribed unasked: %v", r.Properties)
		}
	}
	mail := local.only(t, "AWS::SNS::Subscription", "Alarms").Properties
	same(t, "mail", []any{mail["Protocol"], mail["Endpoint"]}, []any{"email", "ops@example.com"})
}

// A dead letter that nobody understands is seen by its alarm although the reaper
// looks at it each minute: it is out of sight for a small part of that.
func TestDeadLettersAreSeen(t *testing.T) {
	hidden := account.only(t, "AWS::SQS::Queue", "DeadLetters").Properties["VisibilityTimeout"].(float64)
	if hidden > (10 * time.Second).Seconds() {
		t.Errorf("hidden for %v s of each minute", hidden)
	}
}

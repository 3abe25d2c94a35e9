package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	cloudwatchtypes "github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"holdfast/internal/aws/dynamo"
	"holdfast/internal/aws/logs"
	"holdfast/internal/aws/queue"
	"holdfast/internal/batch"
	"holdfast/internal/bridge"
	"holdfast/internal/lease"
)

// alarms are the deployed stack's, by their names without the stack's.
func alarms(t *testing.T) map[string]cloudwatchtypes.MetricAlarm {
	t.Helper()
	out, err := cloudwatch.NewFromConfig(awsConfig(t)).DescribeAlarms(t.Context(), &cloudwatch.DescribeAlarmsInput{AlarmNamePrefix: aws.String("Holdfast-")})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]cloudwatchtypes.MetricAlarm{}
	for _, a := range out.MetricAlarms {
		found[strings.TrimPrefix(aws.ToString(a.AlarmName), "Holdfast-")] = a
	}
	return found
}

// metricLine is a line of a function's log that CloudWatch makes metrics of.
type metricLine struct {
	AWS struct {
		Timestamp         int64
		CloudWatchMetrics []struct {
			Namespace  string
			Dimensions [][]string
			Metrics    []struct{ Name, Unit string }
		}
	} `json:"_aws"`
}

// written looks for a line that makes the alarm's metric: the same namespace and
// name, and one set of dimensions that is the alarm's. It says what was found
// instead.
func written(t *testing.T, a cloudwatchtypes.MetricAlarm, since time.Time) (ok bool, instead string) {
	t.Helper()
	want := map[string]string{}
	for _, d := range a.Dimensions {
		want[aws.ToString(d.Name)] = aws.ToString(d.Value)
	}
	for _, function := range []string{"work", "reap", "finish", "api", "ingest", "gateway"} {
		for line, err := range logs.New(awsConfig(t)).Find(t.Context(), "/holdfast/"+function, since, time.Now().Add(time.Minute), "_aws", aws.ToString(a.MetricName)) {
			if err != nil {
				t.Fatal(err)
			}
			var m metricLine
			var members map[string]any
			if json.Unmarshal([]byte(line), &m) != nil || json.Unmarshal([]byte(line), &members) != nil {
				continue
			}
			if len(line) >= 1000 {
				t.Errorf("%s: a line of %d bytes: %s", function, len(line), line)
			}
			for _, d := range m.AWS.CloudWatchMetrics {
				for _, metric := range d.Metrics {
					_, number := members[metric.Name].(float64)
					if d.Namespace == aws.ToString(a.Namespace) && metric.Name == aws.ToString(a.MetricName) && number && hasSet(d.Dimensions, want, members) {
						return true, ""
					}
				}
			}
			instead = line
		}
	}
	return false, "none like it; the last was: " + instead
}

// hasSet reports whether one of the sets of names, with their values among the
// members, is exactly what an alarm asks for.
func hasSet(sets [][]string, want map[string]string, members map[string]any) bool {
	for _, set := range sets {
		same := set != nil && len(set) == len(want)
		for _, name := range set {
			value, ok := want[name]
			same = same && ok && members[name] == value
		}
		if same {
			return true
		}
	}
	return false
}

// ghosts are what workers that died left behind: a part whose lease has lapsed, one
// that is out of attempts, and a batch whose window was over long ago; and what a
// door left that died between claim and batch. The batch of the first two is
// answered, so that it can be cancelled.
func ghosts(t *testing.T, c *client) (open string) {
	t.Helper()
	table := dynamo.Open(awsConfig(t), env(t, "HOLDFAST_TABLE"))
	work := queue.New(awsConfig(t), env(t, "HOLDFAST_WORK_QUEUE_URL"))
	reqs := mixed(2)
	data := file(reqs)
	f, err := table.Files.Get(t.Context(), c.tenant, c.upload(t, "in.jsonl", data).ID)
	if err != nil {
		t.Fatal(err)
	}
	end := int64(strings.Index(string(data), "\n")) + 1 // of the first line
	now := time.Now().Truncate(time.Millisecond)
	for i, age := range []time.Duration{0, 3 * time.Hour} {
		created := now.Add(-age)
		b := batch.Batch{
			Tenant: c.tenant, ID: batch.NewID(), Status: batch.Validating, Submitter: "somebody@example.com", Endpoint: "/v1/chat/completions",
			Input: batch.Input{FileID: f.ID, Object: f.Object}, Window: "1h", CreatedAt: created, Deadline: created.Add(time.Hour),
		}
		part := func(n int) batch.Part {
			p := batch.Part{PartKey: batch.PartKey{Tenant: c.tenant, Batch: b.ID, N: n}, State: batch.Pending, Lines: 1, FirstPhysical: 1, To: end,
				Due: now.Add(time.Hour), CreatedAt: created}
			if n == 1 {
				p.FirstLine, p.FirstPhysical, p.From, p.To = 1, 2, end, int64(len(data))
			}
			return p
		}
		if err := table.Batches.Create(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if err := table.Parts.Insert(t.Context(), []batch.Part{part(0), part(1)}); err != nil {
			t.Fatal(err)
		}
		if _, err := table.Batches.Start(t.Context(), c.tenant, b.ID, batch.Started{Parts: 2, Lines: 2}, created); err != nil {
			t.Fatal(err)
		}
		if i == 1 {
			// The due index finds it at its deadline, which is over.
			continue
		}
		open = b.ID
		for n := range 2 {
			claim := batch.Claim{PartKey: part(n).PartKey, Token: lease.NewToken()}
			if _, err := table.Claims.Claim(t.Context(), claim, "of-nobody", 3, now.Add(-time.Minute), now.Add(-3*time.Minute)); err != nil {
				t.Fatal(err)
			}
			if n == 1 { // three of them went like that
				if err := table.Claims.HandOver(t.Context(), claim, 3, now.Add(-time.Minute), now); err != nil {
					t.Fatal(err)
				}
				continue
			}
			if err := work.Send(t.Context(), batch.Message{V: 1, Tenant: c.tenant, Batch: b.ID, Part: n, TaskToken: "of-nobody"}, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	claimed := bridge.Request{Tenant: c.tenant, CorrelationID: batch.NewID(), Submitter: "somebody@example.com",
		FileID: f.ID, Endpoint: "/v1/chat/completions", Window: "1h"}
	if err := table.Bridge.Claim(t.Context(), bridge.Row{
		Key: bridge.Key{Tenant: claimed.Tenant, CorrelationID: claimed.CorrelationID}, State: bridge.Reserved, Token: lease.NewToken(), Ver: 1,
		ClaimedAt: now.Add(-2 * time.Hour), Due: now.Add(-time.Hour), Request: claimed, Hash: claimed.Hash(), ExpiresAt: now.Add(bridge.Kept),
	}); err != nil {
		t.Fatal(err)
	}
	return open
}

// tick runs a round of the reaper.
func tick(t *testing.T) {
	t.Helper()
	event, err := os.ReadFile("../../events/reap.json")
	if err != nil {
		t.Fatal(err)
	}
	out, err := lambda.NewFromConfig(awsConfig(t)).Invoke(t.Context(), &lambda.InvokeInput{FunctionName: aws.String(env(t, "HOLDFAST_REAP_FUNCTION")), Payload: event})
	if err != nil || out.FunctionError != nil {
		t.Fatalf("tick: %v, %v", err, out)
	}
}

// listen strikes out the alarms whose metrics are found, until enough says so or
// 20 s have passed.
func listen(t *testing.T, alarms map[string]cloudwatchtypes.MetricAlarm, since time.Time, enough func() bool) {
	t.Helper()
	end := time.Now().Add(20 * time.Second)
	poll(t, time.Minute, func() bool {
		for name, a := range alarms {
			if ok, _ := written(t, a, since); ok {
				delete(alarms, name)
			}
		}
		return enough() || time.Now().After(end)
	}, func() string { return fmt.Sprint(alarms) })
}

// Each alarm listens to a metric that a function of the deployed stack really
// writes, by namespace, name and dimensions; SQS's has the queue's real name, and
// Lambda's the function's.
func TestAlarmsListenToWhatIsWritten(t *testing.T) {
	t.Parallel()
	since := time.Now().Add(-time.Minute)
	listening := alarms(t)
	if len(listening) != 9 {
		t.Fatalf("%d alarms: %v", len(listening), listening)
	}
	c := newTenant(t, "submit,read")
	for name, url := range map[string]string{"DeadLetters": "HOLDFAST_DEAD_LETTERS_URL", "RefusedMessages": "HOLDFAST_INGEST_DEAD_LETTERS_URL"} {
		letters := listening[name]
		delete(listening, name)
		if d := letters.Dimensions; aws.ToString(letters.Namespace) != "AWS/SQS" || aws.ToString(letters.MetricName) != "ApproximateNumberOfMessagesVisible" ||
			len(d) != 1 || aws.ToString(d[0].Name) != "QueueName" || aws.ToString(d[0].Value) != path.Base(env(t, url)) {
			t.Errorf("%s listens to %s %s %v", name, aws.ToString(letters.Namespace), aws.ToString(letters.MetricName), d)
		}
	}
	for name, metric := range map[string]string{"SilentReaper": "Invocations", "FailingReaper": "Errors"} { // Lambda's own
		a := listening[name]
		delete(listening, name)
		if d := a.Dimensions; aws.ToString(a.Namespace) != "AWS/Lambda" || aws.ToString(a.MetricName) != metric ||
			len(d) != 1 || aws.ToString(d[0].Name) != "FunctionName" || aws.ToString(d[0].Value) != env(t, "HOLDFAST_REAP_FUNCTION") {
			t.Errorf("%s listens to %s %s %v", name, aws.ToString(a.Namespace), aws.ToString(a.MetricName), d)
		}
	}
	if status, _, b := newTenant(t, "batch_replay").do(t, "GET", "/v1/batches", "", nil); status != 403 {
		t.Errorf("a key with batch_replay at the API: %d %s", status, b)
	}
	// The minute's own tick may give the part back before a worker comes to steal it,
	// so there is more than one try.
	for try := 1; try <= 3 && len(listening) > 0; try++ {
		defer c.cancel(t, ghosts(t, c))
		listen(t, listening, since, func() bool { _, still := listening["Steals"]; return !still })
		tick(t)
		listen(t, listening, since, func() bool { return len(listening) == 0 })
	}
	for name, a := range listening {
		_, instead := written(t, a, since)
		t.Errorf("nobody writes what %s listens to, %s %s %v: %s", name, aws.ToString(a.Namespace), aws.ToString(a.MetricName), a.Dimensions, instead)
	}
}

// An ordinary batch is in the metrics: what was claimed, how its lines ended, how
// long it took.
func TestMetricsOfABatch(t *testing.T) {
	t.Parallel()
	since := time.Now()
	c := newTenant(t, "submit,read")
	reqs := append(mixed(20), request{rawID: `"refused"`, body: `{"model":"sim-400"}`, model: "sim-400"})
	c.wait(t, c.create(t, c.upload(t, "in.jsonl", file(reqs)).ID, "/v1/chat/completions").ID, 2*time.Minute)
	missing := map[string]cloudwatchtypes.MetricAlarm{}
	for _, name := range []string{"Claims", "LinesCompleted", "LinesFailed", "SlotUse", "Batches", "BatchAge"} {
		missing[name] = cloudwatchtypes.MetricAlarm{Namespace: aws.String("Holdfast"), MetricName: aws.String(name)}
	}
	listen(t, missing, since, func() bool { return len(missing) == 0 })
	for name, a := range missing {
		_, instead := written(t, a, since)
		t.Errorf("no %s: %s", name, instead)
	}
}

// A datum of an alarm's metric raises it, and the topic tells its subscribers,
// with the page of the runbook.
func TestAlarmTellsTheTopic(t *testing.T) {
	t.Parallel()
	cfg := awsConfig(t)
	watch, queues, topics := cloudwatch.NewFromConfig(cfg), sqs.NewFromConfig(cfg), sns.NewFromConfig(cfg)
	alarm, ok := alarms(t)["OverdueBatches"]
	if !ok || len(alarm.AlarmActions) != 1 {
		t.Fatalf("tells %v", alarm.AlarmActions)
	}
	q, err := queues.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: aws.String(fmt.Sprintf("e2e-alarms-%d", time.Now().UnixMilli()))})
	if err != nil {
		t.Fatal(err)
	}
	after := context.WithoutCancel(t.Context()) // which ends before what cleans up is called
	t.Cleanup(func() { _, _ = queues.DeleteQueue(after, &sqs.DeleteQueueInput{QueueUrl: q.QueueUrl}) })
	attributes, err := queues.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{
		QueueUrl: q.QueueUrl, AttributeNames: []sqstypes.QueueAttributeName{sqstypes.QueueAttributeNameQueueArn},
	})
	if err != nil {
		t.Fatal(err)
	}
	policy := fmt.Sprintf(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Service":"sns.amazonaws.com"},"Action":"sqs:SendMessage","Resource":%q,`+
		`"Condition":{"ArnEquals":{"aws:SourceArn":%q}}}]}`, attributes.Attributes["QueueArn"], alarm.AlarmActions[0])
	if _, err := queues.SetQueueAttributes(t.Context(), &sqs.SetQueueAttributesInput{
		QueueUrl: q.QueueUrl, Attributes: map[string]string{string(sqstypes.QueueAttributeNamePolicy): policy},
	}); err != nil {
		t.Fatal(err)
	}
	subscribed, err := topics.Subscribe(t.Context(), &sns.SubscribeInput{
		TopicArn: &alarm.AlarmActions[0], Protocol: aws.String("sqs"), Endpoint: aws.String(attributes.Attributes["QueueArn"]), ReturnSubscriptionArn: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = topics.Unsubscribe(after, &sns.UnsubscribeInput{SubscriptionArn: subscribed.SubscriptionArn})
	})
	// It may stand at ALARM since the last run.
	if _, err := watch.SetAlarmState(t.Context(), &cloudwatch.SetAlarmStateInput{
		AlarmName: alarm.AlarmName, StateValue: cloudwatchtypes.StateValueOk, StateReason: aws.String("a test begins"),
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := watch.PutMetricData(t.Context(), &cloudwatch.PutMetricDataInput{
		Namespace:  alarm.Namespace,
		MetricData: []cloudwatchtypes.MetricDatum{{MetricName: alarm.MetricName, Value: aws.Float64(1), Timestamp: aws.Time(time.Now())}},
	}); err != nil {
		t.Fatal(err)
	}
	said := ""
	poll(t, time.Minute, func() bool {
		if state := alarms(t)["OverdueBatches"].StateValue; state != cloudwatchtypes.StateValueAlarm {
			said = "it is " + string(state)
			return false
		}
		out, err := queues.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: q.QueueUrl, MaxNumberOfMessages: 10})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range out.Messages {
			said = aws.ToString(m.Body)
			if strings.Contains(said, "Holdfast-OverdueBatches") && strings.Contains(said, "docs/runbook.md, OverdueBatches.") && strings.Contains(said, "ALARM") {
				return true
			}
		}
		return false
	}, func() string { return said })
}

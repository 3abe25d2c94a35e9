package main

import (
	"fmt"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatch"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatchactions"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssns"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssnssubscriptions"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/jsii-runtime-go"

	"holdfast/internal/config"
)

// metricNamespace is that of every metric that the functions write. They have no
// dimensions: an alarm sees what all of them write.
const metricNamespace = "Holdfast"

// alarmSpec is one alarm: of one metric, without metric math, so that each is a
// tenth of a dollar a month and can be read at a glance.
type alarmSpec struct {
	name      string // of the alarm below the stack's name, and of its page in docs/runbook.md
	tells     string // what it means, in a sentence
	metric    awscloudwatch.Metric
	below     bool // the alarm is for fewer than threshold, not for as many or more
	threshold int
	periods   int
	missing   awscloudwatch.TreatMissingData
}

// alarmSpecs is every alarm there is. That there is no datum is well for all but
// the reaper: a function writes what happened, and nothing where nothing did.
//
// The reaper's two are of what Lambda itself counts of its function: that costs
// nothing, where a metric written each minute costs as much as three alarms. A
// round that could not read everything is an error of the function.
//
// None is of another function's errors or throttles. finish and plan end with
// errors that the workflow knows what to do about, many times a day; a work function
// that fails leaves a part, of which Steals and DeadParts tell. Throttled pollers
// are slow, and OverdueBatches tells when that matters.
func alarmSpecs(q queues, in *ingest, reap function, opts options) []alarmSpec {
	specs := []alarmSpec{
		{
			name: "Steals", tells: "Workers end without a word, again and again, and it is more than one line's doing.",
			metric: counted("Steals", "Sum", 5*time.Minute), threshold: manySteals(opts), periods: 1,
			missing: awscloudwatch.TreatMissingData_NOT_BREACHING,
		}, {
			name: "DeadParts", tells: "A part had all of its attempts without progress and waits for a redrive.",
			metric: counted("DeadParts", "Sum", 5*time.Minute), threshold: 1, periods: 1,
			missing: awscloudwatch.TreatMissingData_NOT_BREACHING,
		}, {
			name: "DeadLetters", tells: "The dead-letter queue holds a message that nobody has dealt with.",
			metric: depth(q.dead), threshold: 1, periods: 1,
			// SQS says nothing of a queue that nobody has used for six hours.
			missing: awscloudwatch.TreatMissingData_NOT_BREACHING,
		}, {
			name: "SilentReaper", tells: "The reaper has not been called for ten minutes: what is lost stays lost until it is.",
			// Twice five minutes: a tick or two may be throttled or come late.
			metric: reap.lambda.MetricInvocations(sumOf(5 * time.Minute)), below: true, threshold: 1, periods: 2,
			missing: awscloudwatch.TreatMissingData_BREACHING,
		}, {
			name: "FailingReaper", tells: "The reaper has not come through a round for ten minutes: what is lost stays lost until it does.",
			// Of the five ticks of five minutes all fail, and one may fall into the next five.
			metric: reap.lambda.MetricErrors(sumOf(5 * time.Minute)), threshold: 4, periods: 2,
			missing: awscloudwatch.TreatMissingData_NOT_BREACHING,
		}, {
			name: "OverdueBatches", tells: "A batch is still open an hour after its window.",
			// The reaper looks at such a batch each minute, or every ten when executions of
			// it fall one after the other. A shorter period would alarm anew each time.
			metric: counted("OverdueBatches", "Maximum", 15*time.Minute), threshold: 1, periods: 1,
			missing: awscloudwatch.TreatMissingData_NOT_BREACHING,
		}, {
			name: "StaleClaims", tells: "Whoever was to start a batch went without a word, and another one took over.",
			// One is enough: the time between a claim and its confirm is a fraction of a
			// second, so that deaths in it are rare, and rarely alone.
			metric: counted("ClaimSteals", "Sum", 5*time.Minute), threshold: 1, periods: 1,
			missing: awscloudwatch.TreatMissingData_NOT_BREACHING,
		}, {
			name: "RefusedReplays", tells: "A key with batch_replay was used, again and again, for what it may not: it may have leaked.",
			// A worker elsewhere whose batch ends under it is refused a few times, and stops.
			metric: counted("ReplayRefused", "Sum", 5*time.Minute), threshold: 10, periods: 1,
			missing: awscloudwatch.TreatMissingData_NOT_BREACHING,
		},
	}
	if in != nil {
		specs = append(specs, alarmSpec{
			name: "RefusedMessages", tells: "A message of another system was refused, or ended its tries, and lies with the ingest queue's dead letters.",
			metric: depth(in.dead), threshold: 1, periods: 1,
			missing: awscloudwatch.TreatMissingData_NOT_BREACHING, // as for DeadLetters
		})
	}
	return specs
}

// depth is how many messages of the queue somebody could receive.
func depth(queue awssqs.Queue) awscloudwatch.Metric {
	return queue.MetricApproximateNumberOfMessagesVisible(&awscloudwatch.MetricOptions{
		Statistic: jsii.String("Maximum"), Period: seconds(5 * time.Minute),
	})
}

// counted is a metric that the functions write.
func counted(name, statistic string, period time.Duration) awscloudwatch.Metric {
	return awscloudwatch.NewMetric(&awscloudwatch.MetricProps{
		Namespace: jsii.String(metricNamespace), MetricName: jsii.String(name),
		Statistic: jsii.String(statistic), Period: seconds(period),
	})
}

// sumOf is a count of so long.
func sumOf(period time.Duration) *awscloudwatch.MetricOptions {
	return &awscloudwatch.MetricOptions{Statistic: jsii.String("Sum"), Period: seconds(period)}
}

// manySteals is one more than what a single line that kills its workers can bring
// about in five minutes, which needs nobody: such a line gets its error by itself.
// The first of them dies with all the parts that it holds; from then on that line's
// part is run alone, and can be stolen once a lease and margin.
func manySteals(opts options) int {
	again := 5 * time.Minute / (opts.settings.Lease + opts.settings.Skew)
	return config.HeldParts + int(again) + 1
}

// newAlarms adds the alarms and the topic that they tell. Whoever wants to hear of
// them subscribes to it.
func newAlarms(stack awscdk.Stack, q queues, in *ingest, reap function, opts options) awssns.Topic {
	topic := awssns.NewTopic(stack, jsii.String("Alarms"), &awssns.TopicProps{
		DisplayName: jsii.String(*stack.StackName() + " alarms"),
		// Not encrypted: CloudWatch can't use the key that SNS has for that, and one of
		// our own is a dollar a month. A message has an alarm's name, its description and
		// a number; nothing of a tenant is in it.
		EnforceSSL: jsii.Bool(true),
	})
	// EnforceSSL is a policy, and any policy takes the place of the one that lets the
	// account's own services in.
	topic.AddToResourcePolicy(awsiam.NewPolicyStatement(&awsiam.PolicyStatementProps{
		Sid:        jsii.String("AlarmsOfThisAccount"),
		Principals: &[]awsiam.IPrincipal{awsiam.NewServicePrincipal(jsii.String("cloudwatch.amazonaws.com"), nil)},
		Actions:    jsii.Strings("sns:Publish"),
		Resources:  &[]*string{topic.TopicArn()},
		Conditions: &map[string]any{
			"StringEquals": map[string]any{"aws:SourceAccount": stack.Account()},
			"ArnLike": map[string]any{"aws:SourceArn": stack.FormatArn(&awscdk.ArnComponents{
				Service: jsii.String("cloudwatch"), Resource: jsii.String("alarm"),
				ResourceName: jsii.String(*stack.StackName() + "-*"), ArnFormat: awscdk.ArnFormat_COLON_RESOURCE_NAME,
			})},
		},
	}))
	if opts.alarmEmail != "" {
		topic.AddSubscription(awssnssubscriptions.NewEmailSubscription(jsii.String(opts.alarmEmail), nil))
	}
	action := awscloudwatchactions.NewSnsAction(topic)
	for _, spec := range alarmSpecs(q, in, reap, opts) {
		operator := awscloudwatch.ComparisonOperator_GREATER_THAN_OR_EQUAL_TO_THRESHOLD
		if spec.below {
			operator = awscloudwatch.ComparisonOperator_LESS_THAN_THRESHOLD
		}
		alarm := awscloudwatch.NewAlarm(stack, jsii.String(spec.name+"Alarm"), &awscloudwatch.AlarmProps{
			AlarmName:          jsii.String(*stack.StackName() + "-" + spec.name),
			AlarmDescription:   jsii.String(fmt.Sprintf("%s What to do: docs/runbook.md, %s.", spec.tells, spec.name)),
			Metric:             spec.metric,
			Threshold:          jsii.Number(float64(spec.threshold)),
			ComparisonOperator: operator,
			EvaluationPeriods:  jsii.Number(float64(spec.periods)),
			TreatMissingData:   spec.missing,
		})
		// Not when it is over: a dead part waits for its redrive long after the sum is 0
		// again, and a message that all is well would be wrong.
		alarm.AddAlarmAction(action)
	}
	return topic
}

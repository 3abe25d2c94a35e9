package main

import (
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsevents"
	"github.com/aws/aws-cdk-go/awscdk/v2/awseventstargets"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awss3"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/jsii-runtime-go"

	"holdfast/internal/config"
)

// dropped is where the keys of objects begin that start batches:
// in/<tenant>/<whatever>.
const dropped = "in/"

// ingest is the two doors beside HTTP: an object put under [dropped] and a message
// of another system come by one queue, since each further queue that Lambda polls
// costs $0.26 a month.
type ingest struct {
	queue, dead awssqs.Queue
	function    function
}

// spareReceives are receives beyond those that the function counts. It leaves word of
// what its last try met; where that try dies, or can't even do that, it has these to do
// it by, before the queue puts the message among the dead letters with no word at all.
const spareReceives = 5

func ingestSpec(opts options) functionSpec {
	return functionSpec{id: "Ingest", role: config.Ingest,
		description: "Starts batches from objects and from messages",
		// Ten messages side by side, each of which waits for other services.
		memory: 512, timeout: opts.settings.IngestTimeout()}
}

func newIngest(stack awscdk.Stack, s storage, opts options) *ingest {
	dead := awssqs.NewQueue(stack, jsii.String("IngestDeadLetters"), &awssqs.QueueProps{
		RetentionPeriod: seconds(14 * day), // SQS's longest: nobody may miss one
		Encryption:      awssqs.QueueEncryption_SQS_MANAGED,
		EnforceSSL:      jsii.Bool(true),
	})
	queue := awssqs.NewQueue(stack, jsii.String("IngestQueue"), &awssqs.QueueProps{
		// Lambda refuses an event source whose visibility is below the function's
		// timeout. What can succeed later the function itself hides for longer.
		VisibilityTimeout: seconds(opts.settings.IngestTimeout()),
		// Shorter than that of the dead letters, which count a message's age from when it
		// was first sent: whoever looks has a week at least.
		RetentionPeriod: seconds(config.IngestRetention),
		Encryption:      awssqs.QueueEncryption_SQS_MANAGED,
		EnforceSSL:      jsii.Bool(true),
		DeadLetterQueue: &awssqs.DeadLetterQueue{
			Queue:           dead,
			MaxReceiveCount: jsii.Number(float64(opts.settings.IngestReceives + spareReceives)),
		},
	})
	announce(s.inputs)
	newDropRule(stack, s, queue, dead)
	return &ingest{queue: queue, dead: dead, function: newFunction(stack, ingestSpec(opts), opts)}
}

// announce has the bucket tell EventBridge of its objects. The property of the
// construct would do it through a function of CDK's own in the user's account.
func announce(bucket awss3.Bucket) {
	bucket.Node().DefaultChild().(awss3.CfnBucket).SetNotificationConfiguration(&awss3.CfnBucket_NotificationConfigurationProperty{
		EventBridgeConfiguration: &awss3.CfnBucket_EventBridgeConfigurationProperty{EventBridgeEnabled: jsii.Bool(true)},
	})
}

// newDropRule sends what is put under [dropped] in the inputs bucket to the queue,
// and nothing else: neither what the API uploads, nor any result, which lies in
// another bucket. CDK grants the rule, by its ARN, to send to both queues.
func newDropRule(stack awscdk.Stack, s storage, queue, dead awssqs.Queue) {
	awsevents.NewRule(stack, jsii.String("Dropped"), &awsevents.RuleProps{
		Description: jsii.String("Holdfast: an object that starts a batch"),
		EventPattern: &awsevents.EventPattern{
			Source:     jsii.Strings("aws.s3"),
			DetailType: jsii.Strings("Object Created"),
			Detail: &map[string]any{
				"bucket": map[string]any{"name": []*string{s.inputs.BucketName()}},
				"object": map[string]any{"key": []any{map[string]any{"prefix": dropped}}},
			},
		},
		// An event that the queue doesn't take for a day is not lost: it waits beside the
		// messages that were refused, and their alarm tells of it.
		Targets: &[]awsevents.IRuleTarget{awseventstargets.NewSqsQueue(queue, &awseventstargets.SqsQueueProps{
			MaxEventAge: seconds(24 * time.Hour), RetryAttempts: jsii.Number(185), DeadLetterQueue: dead,
		})},
	})
}

// poll lets Lambda poll the queue, once the function may do what it does. One
// invocation takes up to ten messages, and answers for each of them.
func (in *ingest) poll(stack awscdk.Stack, opts options) {
	source := awslambda.NewEventSourceMapping(stack, jsii.String("IngestEvents"), &awslambda.EventSourceMappingProps{
		Target:                  in.function.lambda,
		EventSourceArn:          in.queue.QueueArn(),
		BatchSize:               jsii.Number(10),
		ReportBatchItemFailures: jsii.Bool(true),
		MaxConcurrency:          jsii.Number(float64(opts.settings.IngestConcurrency)),
	})
	// Lambda tries the role's grants when the event source is made.
	source.Node().AddDependency(in.function.role)
}

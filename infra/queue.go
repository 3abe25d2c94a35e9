package main

import (
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/jsii-runtime-go"
)

type queues struct{ work, dead awssqs.Queue }

func newQueues(stack awscdk.Stack, opts options) queues {
	s := opts.settings
	dead := awssqs.NewQueue(stack, jsii.String("DeadLetters"), &awssqs.QueueProps{
		RetentionPeriod: seconds(14 * day), // SQS's longest: nobody may miss one
		Encryption:      awssqs.QueueEncryption_SQS_MANAGED,
		EnforceSSL:      jsii.Bool(true),
		// The reaper, who needs a fraction of it for one, reads it each minute, and what it
		// leaves there is to be seen by the alarm on the queue's depth.
		VisibilityTimeout: seconds(5 * time.Second),
	})
	work := awssqs.NewQueue(stack, jsii.String("WorkQueue"), &awssqs.QueueProps{
		// Until the worker shortens it to its lease. Lambda refuses an event source
		// whose visibility is below the function's timeout.
		VisibilityTimeout: seconds(s.FunctionTimeout),
		RetentionPeriod:   seconds(s.Retention),
		Encryption:        awssqs.QueueEncryption_SQS_MANAGED,
		EnforceSSL:        jsii.Bool(true),
		DeadLetterQueue: &awssqs.DeadLetterQueue{
			Queue:           dead,
			MaxReceiveCount: jsii.Number(float64(s.Receives)),
		},
	})
	return queues{work: work, dead: dead}
}

// newEventSource lets Lambda poll the work queue. What bounds the workers is the
// event source's concurrency, never a reserved one: a throttled function burns
// receives of messages that nobody looked at.
func newEventSource(stack awscdk.Stack, work function, q queues, opts options) {
	source := awslambda.NewEventSourceMapping(stack, jsii.String("WorkEvents"), &awslambda.EventSourceMappingProps{
		Target:                  work.lambda,
		EventSourceArn:          q.work.QueueArn(),
		BatchSize:               jsii.Number(1),
		ReportBatchItemFailures: jsii.Bool(true),
		MaxConcurrency:          jsii.Number(float64(opts.settings.MaxConcurrency)),
	})
	// Lambda tries the role's grants when the event source is made.
	source.Node().AddDependency(work.role)
}

func seconds(d time.Duration) awscdk.Duration {
	return awscdk.Duration_Seconds(jsii.Number(d.Seconds()))
}

package main

import (
	"encoding/json"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslogs"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsstepfunctions"
	"github.com/aws/jsii-runtime-go"

	"holdfast/internal/config"
)

// inlineParts is how many parts an inline Map runs at once; Step Functions runs
// no more. Wider batches will get a Distributed Map from the same function.
const inlineParts = 40

// heldLook is how many seconds pass between two looks at a batch that another
// finisher holds.
const heldLook = 15

// drainLook is how many seconds pass between two looks at workers that drain.
const drainLook = 3

// state is one state, or another object, of the Amazon States Language.
type state = map[string]any

// definition is the whole workflow, Plan -> Parts -> Finish; for a batch that is
// told to end early, of which an execution is started that only finishes, the
// last of them alone. It tells the order
// of things and nothing else: what is done is decided by the table, and a state
// that runs twice finds that out there. Names in ${} are filled in at deploy.
func definition(s config.Settings) state {
	return state{
		"Comment": "One batch: plan its parts, wait for each of them, assemble the results",
		"StartAt": "Only to finish?",
		// The last exit. Every wait inside ends earlier.
		"TimeoutSeconds": whole(2 * s.WaitTimeout),
		"States": state{
			"Only to finish?": state{
				"Type": "Choice",
				"Choices": []state{{
					"And": []state{
						{"Variable": "$.finish", "IsPresent": true},
						{"Variable": "$.finish", "BooleanEquals": true},
					},
					"Next": "Finish",
				}},
				"Default": "Plan",
			},
			"Plan": invoke(s, "${PlanFunction}", state{
				"v.$": "$.v", "tenant.$": "$.tenant", "batch.$": "$.batch",
			}, state{"Next": "Planned?"}),
			"Planned?": state{
				"Type": "Choice",
				"Choices": []state{
					{"Variable": "$.status", "StringEquals": "planned", "Next": "Parts"},
					// Cancelled or expired while it was planned: each line gets its answer.
					{"Variable": "$.status", "StringEquals": "ended", "Next": "Finish"},
				},
				// The file didn't validate: the table says so already.
				"Default": "Nothing to run",
			},
			"Nothing to run": state{"Type": "Succeed"},
			"Parts":          parts(s, "Finish"),
			"Finish": invoke(s, "${FinishFunction}", state{
				"v": 1, "tenant.$": "$.tenant", "batch.$": "$.batch",
			}, state{"End": true}),
		},
	}
}

// parts waits for every part. The Map's output is its input: a result of each
// part would grow the state towards its limit of 256 KiB, and nobody reads it.
func parts(s config.Settings, next string) state {
	return state{
		"Type":           "Map",
		"ItemsPath":      "$.parts",
		"MaxConcurrency": inlineParts,
		"ItemSelector": state{
			"tenant.$": "$.tenant", "batch.$": "$.batch", "part.$": "$$.Map.Item.Value.part",
		},
		"ItemProcessor": state{
			"ProcessorConfig": state{"Mode": "INLINE"},
			"StartAt":         "Part",
			"States":          state{"Part": wait(s)},
		},
		"ResultPath": nil,
		"Next":       next,
	}
}

// wait sends one part's message and waits for its task token. Its times are
// coarse, since they count the message's stay in the queue. When one of them
// passes, a new message is sent; if the part is over by then, the worker that
// receives it reports again. That is how a lost report heals.
func wait(s config.Settings) state {
	again := int((s.WaitTimeout + s.WaitHeartbeat - 1) / s.WaitHeartbeat)
	return state{
		"Type":     "Task",
		"Resource": "arn:${Partition}:states:::sqs:sendMessage.waitForTaskToken",
		"Parameters": state{
			"QueueUrl": "${WorkQueueUrl}",
			"MessageBody": state{
				"v": 1, "tenant.$": "$.tenant", "batch.$": "$.batch", "part.$": "$.part",
				"task_token.$": "$$.Task.Token",
			},
		},
		"HeartbeatSeconds": whole(s.WaitHeartbeat),
		"TimeoutSeconds":   whole(s.WaitTimeout),
		"Retry": []state{
			{
				"ErrorEquals":     []string{"States.Timeout", "States.HeartbeatTimeout"},
				"IntervalSeconds": 1, "BackoffRate": 1, "MaxAttempts": again, "JitterStrategy": "FULL",
			},
			patience("SQS.AmazonSQSException", "SQS.SqsException", "SQS.SdkClientException"),
		},
		"OutputPath": nil,
		"End":        true,
	}
}

// invoke calls a function and makes its answer the state. Both functions may run
// any number of times, so whatever fails them is tried again.
func invoke(s config.Settings, function string, payload, then state) state {
	task := state{
		"Type":     "Task",
		"Resource": "arn:${Partition}:states:::lambda:invoke",
		"Parameters": state{
			"FunctionName": function,
			"Payload":      payload,
		},
		"OutputPath":     "$.Payload",
		"TimeoutSeconds": whole(lambdaLimit + time.Minute),
		"Retry": []state{
			// What trying again can't change: the functions' own name for it.
			{"ErrorEquals": []string{"Holdfast.Permanent"}, "MaxAttempts": 0},
			// Workers save what is under way of a batch that ends early. That is over after
			// Drain at most; a minute more is for what surrounds it.
			{
				"ErrorEquals":     []string{"Holdfast.Draining"},
				"IntervalSeconds": drainLook, "BackoffRate": 1, "MaxAttempts": whole(s.Drain+time.Minute) / drainLook,
			},
			// Another finisher holds the batch. It is dead or will be done within its
			// lease; this waits for a minute longer than that.
			{
				"ErrorEquals":     []string{"Holdfast.Held"},
				"IntervalSeconds": heldLook, "BackoffRate": 1, "MaxAttempts": whole(s.Lease+s.Skew+time.Minute)/heldLook + 1,
			},
			patience("Lambda.ServiceException", "Lambda.AWSLambdaException", "Lambda.SdkClientException",
				"Lambda.ClientExecutionTimeoutException", "Lambda.TooManyRequestsException"),
			{
				"ErrorEquals":     []string{"States.ALL"},
				"IntervalSeconds": 10, "BackoffRate": 3, "MaxAttempts": 3, "MaxDelaySeconds": 120, "JitterStrategy": "FULL",
			},
		},
	}
	for key, value := range then {
		task[key] = value
	}
	return task
}

// patience is the retry of what the service itself gets wrong: some minutes,
// spread out, so that a throttled account isn't hit by every batch at once.
func patience(errors ...string) state {
	return state{
		"ErrorEquals":     errors,
		"IntervalSeconds": 2, "BackoffRate": 2, "MaxAttempts": 8, "MaxDelaySeconds": 60, "JitterStrategy": "FULL",
	}
}

func whole(d time.Duration) int { return int(d / time.Second) }

func newStateMachine(stack awscdk.Stack, opts options, plan, finish function, q queues) awsstepfunctions.StateMachine {
	text, err := json.Marshal(definition(opts.settings))
	if err != nil {
		panic(err) // maps, strings and integers always marshal
	}
	role := awsiam.NewRole(stack, jsii.String("WorkflowRole"), &awsiam.RoleProps{
		AssumedBy:   awsiam.NewServicePrincipal(jsii.String("states.amazonaws.com"), nil),
		Description: jsii.String("Holdfast workflow: invokes plan and finish, sends the parts' messages"),
	})
	role.AddToPolicy(allow("lambda:InvokeFunction").on(plan.lambda.FunctionArn(), finish.lambda.FunctionArn()))
	role.AddToPolicy(allow("sqs:SendMessage").on(q.work.QueueArn()))

	logs := awslogs.NewLogGroup(stack, jsii.String("WorkflowLogs"), &awslogs.LogGroupProps{
		// CloudWatch keeps one resource policy for this prefix; elsewhere each log group
		// adds to a policy that has a size limit.
		LogGroupName:  jsii.String("/aws/vendedlogs/states" + *logGroupName(stack, "workflow")),
		Retention:     awslogs.RetentionDays_ONE_MONTH,
		RemovalPolicy: awscdk.RemovalPolicy_DESTROY,
	})
	return awsstepfunctions.NewStateMachine(stack, jsii.String("Workflow"), &awsstepfunctions.StateMachineProps{
		StateMachineType: awsstepfunctions.StateMachineType_STANDARD,
		DefinitionBody:   awsstepfunctions.DefinitionBody_FromString(jsii.String(string(text))),
		DefinitionSubstitutions: &map[string]*string{
			"Partition":      stack.Partition(),
			"PlanFunction":   plan.lambda.FunctionArn(),
			"FinishFunction": finish.lambda.FunctionArn(),
			"WorkQueueUrl":   q.work.QueueUrl(),
		},
		Role: role,
		Logs: &awsstepfunctions.LogOptions{
			Destination: logs,
			Level:       awsstepfunctions.LogLevel_ALL,
			// Task tokens are in it, and a token is all it takes to report a part.
			IncludeExecutionData: jsii.Bool(false),
		},
		TracingEnabled: jsii.Bool(false), // see the suppression of SF2
	})
}

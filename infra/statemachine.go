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
// no more. Plan calls a batch of more of them wide, and it gets a Distributed Map.
const inlineParts = 40

// mapLabel is in the names of a Distributed Map's runs and of its children,
// <state machine>/<label>:<id>. Without one Step Functions makes a name up at each
// deploy, and nothing could be granted on it.
const mapLabel = "parts"

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
		"Comment":        "One batch: plan its parts, wait for each of them, assemble the results",
		"StartAt":        "Only to finish?",
		"TimeoutSeconds": whole(executionLimit(s)),
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
				// Says that wide batches are understood here. An execution begun before a
				// deploy that brought them doesn't say so, and is given all parts at once.
				"wide": true,
			}, state{"Next": "Planned?"}),
			"Planned?": state{
				"Type": "Choice",
				"Choices": []state{
					{
						"And": []state{
							{"Variable": "$.status", "StringEquals": "planned"},
							{"Variable": "$.wide", "IsPresent": true}, // an older plan function doesn't say
							{"Variable": "$.wide", "BooleanEquals": true},
						},
						"Next": "Many parts",
					},
					{"Variable": "$.status", "StringEquals": "planned", "Next": "Parts"},
					// Cancelled or expired while it was planned: each line gets its answer.
					{"Variable": "$.status", "StringEquals": "ended", "Next": "Finish"},
					// The file didn't validate: the table says so already.
					{"Variable": "$.status", "StringEquals": "failed", "Next": "Nothing to run"},
				},
				// Of a plan function that is newer than this definition, maybe. Whatever it
				// means, nobody ran the batch: the reaper hears of an execution that failed.
				"Default": "Not understood",
			},
			"Nothing to run": state{"Type": "Succeed"},
			"Not understood": state{"Type": "Fail", "Error": "Holdfast.Status", "Cause": "plan answered with a status that this definition doesn't know"},
			"Parts":          parts(s, false, "Finish"),
			"Many parts":     parts(s, true, "Finish"),
			"Finish": invoke(s, "${FinishFunction}", state{
				"v": 1, "tenant.$": "$.tenant", "batch.$": "$.batch",
			}, state{"End": true}),
		},
	}
}

// executionLimit is the last exit. Every wait inside ends earlier.
func executionLimit(s config.Settings) time.Duration { return 2 * s.WaitTimeout }

// parts waits for every part. The Map's output is its input: a result of each
// part would grow the state towards its limit of 256 KiB, and nobody reads it.
//
// A wide batch's parts are too many for the state, which is why they come from an
// object, and for one execution's history of 25,000 events, which is why each has
// an execution of its own: the batch's gets four events, however many parts there
// are. A part's execution that fails takes nothing with it: the others go on, and
// Finish, which asks the table, says that parts are open.
func parts(s config.Settings, wide bool, next string) state {
	mode, one := state{"Mode": "INLINE"}, "Part"
	if wide {
		mode, one = state{"Mode": "DISTRIBUTED", "ExecutionType": "STANDARD"}, "Part of many" // names occur once in a definition
	}
	each := state{
		"Type": "Map",
		"ItemSelector": state{
			"tenant.$": "$.tenant", "batch.$": "$.batch", "part.$": "$$.Map.Item.Value.part",
		},
		"ItemProcessor": state{
			"ProcessorConfig": mode,
			"StartAt":         one,
			"States":          state{one: wait(s)},
		},
		"ResultPath": nil,
		"Next":       next,
	}
	if !wide {
		each["ItemsPath"] = "$.parts"
		each["MaxConcurrency"] = inlineParts
		return each
	}
	each["Label"] = mapLabel
	each["ItemReader"] = state{
		"Resource":     "arn:${Partition}:states:::s3:getObject",
		"ReaderConfig": state{"InputType": "JSONL"},
		"Parameters":   state{"Bucket.$": "$.plan.bucket", "Key.$": "$.plan.key"},
	}
	each["MaxConcurrency"] = s.Waiting() // the reaper counts on it
	each["ToleratedFailurePercentage"] = 100
	each["Retry"] = []state{
		// S3's trouble. Parts that are begun twice are harmless: the second message finds
		// its part held, or over and reports again.
		patience("States.ItemReaderFailed"),
	}
	each["Catch"] = []state{{
		// What all parts answered is too long for a state, although nobody reads it.
		// They are over all the same.
		"ErrorEquals": []string{"States.DataLimitExceeded"}, "ResultPath": nil, "Next": next,
	}}
	return each
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
			// Of a standard queue whose messages say whose they are, SQS lets nobody's backlog
			// keep the others waiting. Each of our senders names the tenant.
			"MessageGroupId.$": "$.tenant",
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
			// A finisher's time was up, and it recorded how far it came: 15 minutes of
			// assembling are 50 GB or more, and 200 calls more than any object can hold.
			{
				"ErrorEquals":     []string{"Holdfast.Continue"},
				"IntervalSeconds": 1, "BackoffRate": 1, "MaxAttempts": 200,
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

func newStateMachine(stack awscdk.Stack, opts options, plan, finish function, st storage, q queues) awsstepfunctions.StateMachine {
	text, err := json.Marshal(definition(opts.settings))
	if err != nil {
		panic(err) // maps, strings and integers always marshal
	}
	role := awsiam.NewRole(stack, jsii.String("WorkflowRole"), &awsiam.RoleProps{
		AssumedBy:   awsiam.NewServicePrincipal(jsii.String("states.amazonaws.com"), nil),
		Description: jsii.String("Holdfast workflow: invokes plan and finish, sends the parts' messages"),
	})
	for _, statement := range workflowPermissions(plan, finish, st, q) {
		role.AddToPolicy(statement)
	}

	logs := awslogs.NewLogGroup(stack, jsii.String("WorkflowLogs"), &awslogs.LogGroupProps{
		// CloudWatch keeps one resource policy for this prefix; elsewhere each log group
		// adds to a policy that has a size limit.
		LogGroupName:  jsii.String("/aws/vendedlogs/states" + *logGroupName(stack, "workflow")),
		Retention:     awslogs.RetentionDays_ONE_MONTH,
		RemovalPolicy: awscdk.RemovalPolicy_DESTROY,
	})
	machine := awsstepfunctions.NewStateMachine(stack, jsii.String("Workflow"), &awsstepfunctions.StateMachineProps{
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
	// A policy of its own: the role's must be there before the state machine is, and
	// this one names it.
	awsiam.NewPolicy(stack, jsii.String("WorkflowMap"), &awsiam.PolicyProps{
		Roles:      &[]awsiam.IRole{role},
		Statements: mapPermissions(stack, machine),
	})
	return machine
}

package main

import (
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsevents"
	"github.com/aws/aws-cdk-go/awscdk/v2/awseventstargets"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsstepfunctions"
	"github.com/aws/jsii-runtime-go"
)

// newReapRules has the reaper called each minute, and whenever an execution of the
// state machine comes to a bad end. Children of a Distributed Map are of another
// ARN: their batch's own execution sees to them.
func newReapRules(stack awscdk.Stack, reap function, machine awsstepfunctions.StateMachine) {
	awsevents.NewRule(stack, jsii.String("ReapTick"), &awsevents.RuleProps{
		Description: jsii.String("Holdfast: a round of the reaper"),
		Schedule:    awsevents.Schedule_Rate(awscdk.Duration_Minutes(jsii.Number(1))),
		// A tick that comes late is worth nothing: the next is there.
		Targets: &[]awsevents.IRuleTarget{awseventstargets.NewLambdaFunction(reap.lambda, &awseventstargets.LambdaFunctionProps{
			RetryAttempts: jsii.Number(0), MaxEventAge: seconds(time.Minute),
		})},
	})
	awsevents.NewRule(stack, jsii.String("ReapFallen"), &awsevents.RuleProps{
		Description: jsii.String("Holdfast: an execution failed, timed out or was stopped"),
		EventPattern: &awsevents.EventPattern{
			Source:     jsii.Strings("aws.states"),
			DetailType: jsii.Strings("Step Functions Execution Status Change"),
			Detail: &map[string]any{
				"stateMachineArn": []*string{machine.StateMachineArn()},
				"status":          []string{"FAILED", "TIMED_OUT", "ABORTED"},
			},
		},
		// Should it be lost, the batch's own due time is ten minutes away at most.
		Targets: &[]awsevents.IRuleTarget{awseventstargets.NewLambdaFunction(reap.lambda, &awseventstargets.LambdaFunctionProps{
			RetryAttempts: jsii.Number(3), MaxEventAge: seconds(10 * time.Minute),
		})},
	})
}

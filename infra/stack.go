package main

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/jsii-runtime-go"
)

const stackName = "Holdfast"

// newStack adds the whole stack to the app.
func newStack(app awscdk.App, name string, opts options) awscdk.Stack {
	stack := awscdk.NewStack(app, jsii.String(name), &awscdk.StackProps{
		Description: jsii.String("Holdfast: batch inference that survives its workers"),
	})
	s := newStorage(stack, opts)
	q := newQueues(stack, opts)

	plan := newFunction(stack, planSpec(), opts)
	finish := newFunction(stack, finishSpec(), opts)
	work := newFunction(stack, workSpec(opts), opts)
	machine := newStateMachine(stack, opts, plan, finish, s, q)
	reap := newFunction(stack, reapSpec(), opts)
	newReapRules(stack, reap, machine)
	api := newFunction(stack, apiSpec(), opts)
	http := newHTTPAPI(stack, api)

	// Names reach the functions only now, when everything exists: the state machine
	// needs plan and finish, and api needs the state machine.
	names := resourceNames(s, q, machine, opts)
	for _, f := range []function{api, plan, work, finish, reap} {
		f.giveNames(names)
	}
	api.allow(apiPermissions(stack, s, q, machine))
	plan.allow(planPermissions(s))
	work.allow(workPermissions(stack, s, q, opts))
	finish.allow(finishPermissions(s))
	reap.allow(reapPermissions(stack, s, q, machine))
	newEventSource(stack, work, q, opts)
	alarms := newAlarms(stack, q, reap, opts)

	for name, value := range map[string]*string{
		"ApiUrl":             http.ApiEndpoint(),
		"TableName":          s.table.TableName(),
		"InputsBucketName":   s.inputs.BucketName(),
		"ResultsBucketName":  s.results.BucketName(),
		"WorkQueueUrl":       q.work.QueueUrl(),
		"DeadLetterQueueUrl": q.dead.QueueUrl(),
		"StateMachineArn":    machine.StateMachineArn(),
		"ApiFunctionName":    api.lambda.FunctionName(),
		"PlanFunctionName":   plan.lambda.FunctionName(),
		"WorkFunctionName":   work.lambda.FunctionName(),
		"FinishFunctionName": finish.lambda.FunctionName(),
		"ReapFunctionName":   reap.lambda.FunctionName(),
		"AlarmTopicArn":      alarms.TopicArn(),
	} {
		awscdk.NewCfnOutput(stack, jsii.String(name), &awscdk.CfnOutputProps{Value: value})
	}

	for _, finding := range suppressions(stack, s, machine) {
		finding.suppress(stack)
	}
	return stack
}

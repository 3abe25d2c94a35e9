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
	functions := []function{api, plan, work, finish, reap}
	callers := []function{work} // of upstreams
	var gate *gateway           // nil without it
	if opts.gateway {
		gate = newGateway(stack, opts)
		functions, callers = append(functions, gate.function), append(callers, gate.function)
	}
	var in *ingest // nil without doors
	if opts.doors {
		in = newIngest(stack, s, opts)
		functions = append(functions, in.function)
	}

	// Names reach the functions only now, when everything exists: the state machine
	// needs plan and finish, and api needs the state machine.
	names := resourceNames(s, q, in, machine, opts)
	for _, f := range functions {
		f.giveNames(names)
	}
	api.allow(apiPermissions(stack, s, q, machine))
	plan.allow(planPermissions(s))
	work.allow(workPermissions(stack, s, q, opts))
	finish.allow(finishPermissions(s))
	reap.allow(reapPermissions(stack, s, q, machine, opts))
	newEventSource(stack, work, q, opts)
	if in != nil {
		in.function.allow(ingestPermissions(stack, s, in, machine, opts))
		in.poll(stack, opts)
	}
	if gate != nil {
		gate.function.allow(gatewayPermissions(stack, s, opts))
	}
	var net *network // nil without a VPC
	if opts.network.VPC != "" {
		net = newNetwork(stack, s, q, opts)
		for _, f := range callers {
			net.take(stack, f)
		}
	}
	alarms := newAlarms(stack, q, in, reap, opts)

	outputs := map[string]*string{
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
	}
	if in != nil {
		outputs["IngestQueueUrl"] = in.queue.QueueUrl()
		outputs["IngestDeadLettersUrl"] = in.dead.QueueUrl()
		outputs["IngestFunctionName"] = in.function.lambda.FunctionName()
	}
	if gate != nil {
		outputs["GatewayUrl"] = gate.url.Url()
		outputs["GatewayFunctionName"] = gate.function.lambda.FunctionName()
	}
	if net != nil {
		outputs["VpcId"] = net.vpc.VpcId()
		outputs["CallersSecurityGroupId"] = net.functions.SecurityGroupId()
	}
	for name, value := range outputs {
		awscdk.NewCfnOutput(stack, jsii.String(name), &awscdk.CfnOutputProps{Value: value})
	}

	for _, finding := range suppressions(stack, s, machine, opts) {
		finding.suppress(stack)
	}
	return stack
}

package main

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslogs"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsstepfunctions"
	"github.com/aws/jsii-runtime-go"

	"holdfast/internal/config"
)

// functionSpec is what differs between functions. Memory is also the share of a
// processor: 1,769 MB are a whole one.
type functionSpec struct {
	id          string // of the construct
	role        config.Role
	description string
	memory      int
	timeout     time.Duration
	loops       bool // sends messages to the queue that invokes it
	reserved    int  // at most so many at once, which nobody else of the account has then; 0: no bound of its own
}

func apiSpec() functionSpec {
	return functionSpec{id: "Api", role: config.API,
		description: "Files and batches over HTTP",
		memory:      512, timeout: 29 * time.Second} // HTTP API waits for 30 and then answers in a shape of its own
}

func planSpec() functionSpec {
	return functionSpec{id: "Plan", role: config.Plan,
		description: "Validates an input file and inserts its parts",
		// 10 million lines need 230 MB of it. The rest is for the processor: 0.58 of one
		// judges lines about as fast as a function's network brings them, some 75 MB/s,
		// so that 10 GB are read in two to four minutes; 100,000 parts take two more.
		memory: 1024, timeout: lambdaLimit}
}

func workSpec(opts options) functionSpec {
	return functionSpec{id: "Work", role: config.Work,
		description: "Replays the lines of one part",
		memory:      opts.settings.WorkMemory, timeout: opts.settings.FunctionTimeout, loops: true}
}

func finishSpec() functionSpec {
	return functionSpec{id: "Finish", role: config.Finish,
		description: "Assembles the result files and closes the batch",
		memory:      1024, timeout: lambdaLimit}
}

func reapSpec() functionSpec {
	return functionSpec{id: "Reap", role: config.Reap,
		description: "Finds what nobody looks after any more and sets it going again",
		// A round that needs longer goes on in the next.
		memory: config.ReapMemory, timeout: time.Minute}
}

// lambdaLimit is the longest a function may run.
const lambdaLimit = 15 * time.Minute

type function struct {
	spec   functionSpec
	lambda awslambda.Function
	role   awsiam.Role
}

func newFunction(stack awscdk.Stack, spec functionSpec, opts options) function {
	// The role and the log group are ours: what CDK makes by itself may write to
	// every log group and keeps its logs for ever.
	role := awsiam.NewRole(stack, jsii.String(spec.id+"Role"), &awsiam.RoleProps{
		AssumedBy:   awsiam.NewServicePrincipal(jsii.String("lambda.amazonaws.com"), nil),
		Description: jsii.String("Holdfast " + spec.role.Name + ": " + spec.description),
	})
	logs := awslogs.NewLogGroup(stack, jsii.String(spec.id+"Logs"), &awslogs.LogGroupProps{
		LogGroupName:  logGroupName(stack, spec.role.Name),
		Retention:     awslogs.RetentionDays_ONE_MONTH,
		RemovalPolicy: awscdk.RemovalPolicy_DESTROY,
	})
	role.AddToPolicy(allow("logs:CreateLogStream", "logs:PutLogEvents").on(logs.LogGroupArn()))

	env := map[string]*string{}
	for name, value := range opts.settings.Env() {
		env[name] = jsii.String(value)
	}
	architecture := awslambda.Architecture_ARM_64()
	if opts.architecture == "amd64" {
		architecture = awslambda.Architecture_X86_64()
	}
	props := &awslambda.FunctionProps{
		Description:  jsii.String(spec.description),
		Runtime:      awslambda.Runtime_PROVIDED_AL2023(),
		Architecture: architecture,
		Handler:      jsii.String("bootstrap"),
		Code:         awslambda.Code_FromAsset(jsii.String(filepath.Join(opts.functions, spec.role.Name)), nil),
		MemorySize:   jsii.Number(float64(spec.memory)),
		Timeout:      seconds(spec.timeout),
		Role:         role,
		LogGroup:     logs,
		Environment:  &env,
	}
	if spec.reserved > 0 {
		props.ReservedConcurrentExecutions = jsii.Number(float64(spec.reserved))
	}
	if spec.loops {
		// Handing over sends the part's message again from inside the function. Lambda
		// takes the sixteenth such message in a row for a runaway loop and drops it to
		// the dead letters; a slow part hands over more often than that, and what ends
		// it is its batch's deadline.
		props.RecursiveLoop = awslambda.RecursiveLoop_ALLOW
	}
	return function{spec: spec, role: role, lambda: awslambda.NewFunction(stack, jsii.String(spec.id), props)}
}

// logGroupName names a log group after the stack, so that a person and a test
// find it without asking for generated names.
func logGroupName(stack awscdk.Stack, of string) *string {
	return jsii.String("/" + strings.ToLower(*stack.StackName()) + "/" + of)
}

// resourceNames gives the value of every variable of [config.Resources].
func resourceNames(s storage, q queues, in *ingest, machine awsstepfunctions.StateMachine, opts options) map[string]*string {
	names := map[string]*string{
		config.EnvTable:           s.table.TableName(),
		config.EnvInputsBucket:    s.inputs.BucketName(),
		config.EnvResultsBucket:   s.results.BucketName(),
		config.EnvWorkQueueURL:    q.work.QueueUrl(),
		config.EnvDeadLettersURL:  q.dead.QueueUrl(),
		config.EnvStateMachineARN: machine.StateMachineArn(),
		config.EnvUpstreamURL:     jsii.String(opts.upstream.URL),
		config.EnvUpstreamSecret:  jsii.String(opts.upstream.Secret),
		config.EnvUpstreamKey:     jsii.String(opts.upstream.Key),
		config.EnvUpstreams:       jsii.String(opts.upstreamText),
		config.EnvUpstreamAllow:   jsii.String(opts.allowText),
		config.EnvJobsURL:         jsii.String(opts.jobs.URL),
		config.EnvJobsSecret:      jsii.String(opts.jobs.Secret),
		config.EnvJobsKey:         jsii.String(opts.jobs.Key),
	}
	if in != nil {
		names[config.EnvIngestQueueURL] = in.queue.QueueUrl()
		names[config.EnvIngestDeadLettersURL] = in.dead.QueueUrl()
	}
	return names
}

// giveNames hands the function the names that its role needs, and no other.
func (f function) giveNames(names map[string]*string) {
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if f.spec.role.Needs(name) && *names[name] != "" {
			f.lambda.AddEnvironment(jsii.String(name), names[name], nil)
		}
	}
}

func (f function) allow(statements []awsiam.PolicyStatement) {
	for _, statement := range statements {
		f.role.AddToPolicy(statement)
	}
}

package main

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsstepfunctions"
	"github.com/aws/jsii-runtime-go"
)

// Partition keys of the table begin with what they hold. A grant by beginning is
// a real fence: the worker, which talks to a foreign service, can't read a key
// record however it is tricked.
const (
	keyRecords = "KEY#*"
	batches    = "T#*" // batches, parts and events
	files      = "F#*"
	bridgeRows = "BR#*" // correlation ids and what they stand for
	sends      = "RS#*" // sends that named none
	uploads    = "U#*"  // files that arrive in parts
	tenants    = "TENANT#*"

	callReceipts = "RC#*" // of calls that the gateway made
)

// apiPermissions: checks keys, keeps files and batches, starts workflows, and
// signs downloads, which carry its own rights.
func apiPermissions(stack awscdk.Stack, s storage, q queues, machine awsstepfunctions.StateMachine) []awsiam.PolicyStatement {
	return []awsiam.PolicyStatement{
		allow("dynamodb:GetItem").items(s, keyRecords, tenants, batches, files, bridgeRows, sends, uploads),
		allow("dynamodb:BatchGetItem").items(s, keyRecords, tenants),                                                      // both in one call
		allow("dynamodb:Query").items(s, batches, callReceipts),                                                           // a running batch's counts; the gateway's receipts
		allow("dynamodb:PutItem", "dynamodb:UpdateItem").items(s, keyRecords, batches, files, bridgeRows, sends, uploads), // keys: an administrator's, and their last use
		allow("dynamodb:DeleteItem").items(s, bridgeRows),                                                                 // a claim given back
		allow("dynamodb:Query").entries(s, "tenant", "B#*", "F#*", "KEYS#*"),
		// By version too: a download is of the bytes that were uploaded, whatever was put
		// there since.
		allow("s3:PutObject", "s3:GetObject", "s3:GetObjectVersion", "s3:DeleteObject").objects(s.inputs.BucketArn(), "files/*"),
		allow("s3:GetObject", "s3:GetObjectVersion").objects(s.inputs.BucketArn(), dropped+"*"),
		// Parts through the API are objects; those sent to URLs, which carry its own
		// rights, are pieces of the file. A completion asks whether that is there.
		allow("s3:PutObject", "s3:GetObject", "s3:DeleteObject").objects(s.inputs.BucketArn(), "uploads/*"),
		allow("s3:ListMultipartUploadParts", "s3:AbortMultipartUpload").objects(s.inputs.BucketArn(), "files/*"),
		allow("s3:ListBucket").on(s.inputs.BucketArn(), s.results.BucketArn()),
		allow("s3:GetObject").objects(s.results.BucketArn(), "*/out/*"),
		// Of a batch's three files the person may delete two: receipts stay.
		allow("s3:DeleteObject").on(jsii.String(*s.results.BucketArn()+"/*/out/*_output.jsonl"), jsii.String(*s.results.BucketArn()+"/*/out/*_error.jsonl")),
		allow("states:StartExecution").on(machine.StateMachineArn()),
		allow("states:DescribeExecution", "states:StopExecution").on(executions(stack, machine, ":*")),
		// An administrator's reclaim is a round of the reaper over one tenant, and a
		// redrive looks at the part's batch in the same write.
		allow("dynamodb:BatchGetItem", "dynamodb:BatchWriteItem", "dynamodb:ConditionCheckItem").items(s, batches),
		allow("dynamodb:Query").entries(s, "due", "DUE#*", "DEAD#*"),
		allow(sendMessages...).on(q.work.QueueArn()),
		allow("states:SendTaskSuccess").on(jsii.String("*")),
	}
}

// sendMessages is to send one message, or ten. AWS has the first action for both;
// the local one asks for each by the name of its call.
var sendMessages = []string{"sqs:SendMessage", "sqs:SendMessageBatch"}

// executions are those of the state machine whose name ends so: ":*" is every one
// that somebody started, "/<label>:*" every child of a Distributed Map.
func executions(stack awscdk.Stack, machine awsstepfunctions.StateMachine, which string) *string {
	return stack.FormatArn(&awscdk.ArnComponents{
		Service:      jsii.String("states"),
		Resource:     jsii.String("execution"),
		ResourceName: jsii.String(*machine.StateMachineName() + which),
		ArnFormat:    awscdk.ArnFormat_COLON_RESOURCE_NAME,
	})
}

// inputKeys are the objects that may be a batch's input: what was uploaded, and
// what was put there to start one, which stays where it is.
func inputKeys(s storage) []*string {
	return []*string{
		jsii.String(*s.inputs.BucketArn() + "/files/*"),
		jsii.String(*s.inputs.BucketArn() + "/" + dropped + "*"),
	}
}

// planPermissions: reads the input once, whole, inserts parts, and lists those of
// a wide batch.
func planPermissions(s storage) []awsiam.PolicyStatement {
	return []awsiam.PolicyStatement{
		allow("dynamodb:GetItem", "dynamodb:Query", "dynamodb:PutItem", "dynamodb:UpdateItem").items(s, batches),
		allow("s3:GetObject", "s3:GetObjectVersion").on(inputKeys(s)...),
		// Without it S3 answers 403 instead of 404 for a file that is gone, and the
		// batch could not say what is wrong with it.
		allow("s3:ListBucket").on(s.inputs.BucketArn()),
		allow("s3:PutObject", "s3:PutObjectTagging").objects(s.results.BucketArn(), "*/plan/*"),
	}
}

// workPermissions: claims parts, reads their lines, writes chunks. It neither
// reads nor deletes results.
func workPermissions(stack awscdk.Stack, s storage, q queues, opts options) []awsiam.PolicyStatement {
	statements := []awsiam.PolicyStatement{
		allow("dynamodb:GetItem", "dynamodb:UpdateItem", "dynamodb:PutItem").items(s, batches), // put: events
		allow("s3:GetObject", "s3:GetObjectVersion").on(inputKeys(s)...),
		allow("s3:PutObject", "s3:PutObjectTagging").objects(s.results.BucketArn(), "*/parts/*"),
		// As for plan: a deleted input is told from a denied one.
		allow("s3:ListBucket").on(s.inputs.BucketArn()),
		// GetQueueAttributes is the event source's.
		allow("sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:ChangeMessageVisibility", "sqs:SendMessage", "sqs:GetQueueAttributes").
			on(q.work.QueueArn()),
		allow("states:SendTaskSuccess").on(jsii.String("*")),
	}
	for _, name := range opts.upstreamSecrets() {
		statements = append(statements, readSecret(stack, name)...)
	}
	return statements
}

// readSecret grants to read the secret of this name; nothing where there is none.
func readSecret(stack awscdk.Stack, name string) []awsiam.PolicyStatement {
	if name == "" {
		return nil
	}
	return []awsiam.PolicyStatement{allow("secretsmanager:GetSecretValue").on(secretARN(stack, name))}
}

// secretARN is that of the secret of this name, which may not be there yet: Secrets
// Manager adds six characters to a secret's name in its ARN.
func secretARN(stack awscdk.Stack, name string) *string {
	return stack.FormatArn(&awscdk.ArnComponents{
		Service:      jsii.String("secretsmanager"),
		Resource:     jsii.String("secret"),
		ResourceName: jsii.String(name + "-??????"),
		ArnFormat:    awscdk.ArnFormat_COLON_RESOURCE_NAME,
	})
}

// finishPermissions: merges chunks into the result files and deletes them; reads
// the input for the lines that have no result.
func finishPermissions(s storage) []awsiam.PolicyStatement {
	return []awsiam.PolicyStatement{
		allow("dynamodb:GetItem", "dynamodb:Query", "dynamodb:UpdateItem").items(s, batches),
		allow("dynamodb:GetItem", "dynamodb:PutItem").items(s, files),
		allow("s3:GetObject", "s3:GetObjectVersion").on(inputKeys(s)...),
		allow("s3:GetObject", "s3:DeleteObject").objects(s.results.BucketArn(), "*/parts/*"),
		// What is not yet a whole piece of a file, while a finisher's progress needs it.
		allow("s3:PutObject", "s3:PutObjectTagging").objects(s.results.BucketArn(), "*/parts/*/finish/*"),
		allow("s3:GetObject", "s3:PutObject", "s3:PutObjectTagging", "s3:ListMultipartUploadParts", "s3:AbortMultipartUpload").
			objects(s.results.BucketArn(), "*/out/*"),
		// As for plan: a deleted input is told from a denied one, and a second complete
		// asks whether the object is there.
		allow("s3:ListBucket").on(s.inputs.BucketArn(), s.results.BucketArn()),
	}
}

// reapPermissions: looks through the due index, gives parts back, ends batches,
// sends messages, starts and stops workflows, and submits the requests of claims
// that went stale: then it creates batches as ingest does. It reads neither inputs
// nor results.
func reapPermissions(stack awscdk.Stack, s storage, q queues, machine awsstepfunctions.StateMachine, opts options) []awsiam.PolicyStatement {
	return append([]awsiam.PolicyStatement{
		// BatchWriteItem is for events.
		allow("dynamodb:GetItem", "dynamodb:BatchGetItem", "dynamodb:Query", "dynamodb:UpdateItem", "dynamodb:BatchWriteItem").items(s, batches),
		allow("dynamodb:Query").entries(s, "due", "DUE#*", "DEAD#*"),
		allow(sendMessages...).on(q.work.QueueArn()),
		allow("sqs:ReceiveMessage", "sqs:DeleteMessage").on(q.dead.QueueArn()),
		allow("states:StartExecution").on(machine.StateMachineArn()),
		allow("states:DescribeExecution", "states:StopExecution").on(executions(stack, machine, ":*")),
		allow("states:SendTaskSuccess").on(jsii.String("*")),
		allow("dynamodb:GetItem", "dynamodb:UpdateItem", "dynamodb:DeleteItem").items(s, bridgeRows),
		allow("dynamodb:GetItem", "dynamodb:PutItem").items(s, files),
		allow("dynamodb:PutItem").items(s, batches),
		// What a tenant has running already, where it has a limit for that.
		allow("dynamodb:GetItem").items(s, tenants),
		allow("dynamodb:Query").entries(s, "tenant", "B#*"),
	}, readSecret(stack, opts.jobs.Secret)...)
}

// ingestPermissions: looks at what was dropped and at its tenant, claims its id,
// records its file and its batch, and starts the workflow. Of the objects it reads
// the versions' names, the sidecars and the beginnings; what can't start leaves an
// error object among the tenant's results.
func ingestPermissions(stack awscdk.Stack, s storage, in *ingest, machine awsstepfunctions.StateMachine, opts options) []awsiam.PolicyStatement {
	versions := allow("s3:ListBucketVersions").on(s.inputs.BucketArn())
	versions.AddCondition(jsii.String("StringLike"), map[string]any{"s3:prefix": dropped + "*"})
	return append([]awsiam.PolicyStatement{
		allow("dynamodb:GetItem").items(s, tenants, batches, files, bridgeRows),
		// What a tenant has running already, where it has a limit for that.
		allow("dynamodb:Query").items(s, batches),
		allow("dynamodb:Query").entries(s, "tenant", "B#*"),
		allow("dynamodb:PutItem").items(s, batches, files, bridgeRows),
		allow("dynamodb:UpdateItem", "dynamodb:DeleteItem").items(s, bridgeRows),
		allow("s3:GetObject", "s3:GetObjectVersion").objects(s.inputs.BucketArn(), dropped+"*"),
		// As for plan: an object that is gone is told from one that is denied. A question
		// for one object names no prefix, so there can be no condition on it here.
		allow("s3:ListBucket").on(s.inputs.BucketArn()),
		versions,
		allow("s3:PutObject", "s3:PutObjectTagging").objects(s.results.BucketArn(), "*/"+dropped+"*"),
		allow("states:StartExecution").on(machine.StateMachineArn()),
		allow("states:DescribeExecution").on(executions(stack, machine, ":*")),
		// GetQueueAttributes is the event source's.
		allow("sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:ChangeMessageVisibility", "sqs:GetQueueAttributes").on(in.queue.QueueArn()),
		allow("sqs:SendMessage").on(in.dead.QueueArn()),
	}, readSecret(stack, opts.jobs.Secret)...)
}

// workflowPermissions: calls the two functions, sends the parts' messages, and
// reads the list of a wide batch's parts.
func workflowPermissions(plan, finish function, s storage, q queues) []awsiam.PolicyStatement {
	return []awsiam.PolicyStatement{
		allow("lambda:InvokeFunction").on(plan.lambda.FunctionArn(), finish.lambda.FunctionArn()),
		allow("sqs:SendMessage").on(q.work.QueueArn()),
		allow("s3:GetObject").objects(s.results.BucketArn(), "*/plan/*"),
	}
}

// mapPermissions is what Step Functions documents for a Distributed Map: the role
// starts executions of its own state machine, and looks after them. What it
// starts is named after the Map's label, what stands in the documentation is the
// parent's form, so both are granted.
func mapPermissions(stack awscdk.Stack, machine awsstepfunctions.StateMachine) *[]awsiam.PolicyStatement {
	return &[]awsiam.PolicyStatement{
		allow("states:StartExecution").on(machine.StateMachineArn()),
		allow("states:DescribeExecution", "states:StopExecution").
			on(executions(stack, machine, ":*"), executions(stack, machine, "/"+mapLabel+":*")),
	}
}

// grant is a statement that has its actions and still lacks its resources.
type grant []string

func allow(actions ...string) grant { return actions }

func (g grant) on(resources ...*string) awsiam.PolicyStatement {
	return awsiam.NewPolicyStatement(&awsiam.PolicyStatementProps{
		Actions:   jsii.Strings(g...),
		Resources: &resources,
	})
}

// objects grants by the beginning or a folder of the key.
func (g grant) objects(bucketARN *string, keys string) awsiam.PolicyStatement {
	return g.on(jsii.String(*bucketARN + "/" + keys))
}

// items grants on the table's items whose partition key begins so. Every action
// granted here names its keys, so the condition is never vacuous; Scan and
// PartiQL, which may not, are granted to nobody.
func (g grant) items(s storage, beginnings ...string) awsiam.PolicyStatement {
	return leading(g.on(s.table.TableArn()), beginnings)
}

// entries grants on what an index holds under partition keys of its own that begin
// so. The index tenant has key records, whole, beside batches and files.
func (g grant) entries(s storage, index string, beginnings ...string) awsiam.PolicyStatement {
	return leading(g.on(jsii.String(*s.table.TableArn()+"/index/"+index)), beginnings)
}

func leading(statement awsiam.PolicyStatement, beginnings []string) awsiam.PolicyStatement {
	statement.AddCondition(jsii.String("ForAllValues:StringLike"), map[string]any{
		"dynamodb:LeadingKeys": beginnings,
	})
	return statement
}

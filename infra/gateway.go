package main

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/jsii-runtime-go"

	"holdfast/internal/config"
)

// gateway is the OpenAI endpoints in front of the upstreams. A function URL, since
// that passes a reply on as it comes and for as long as it takes: the HTTP API would
// keep it until it is whole, and cut it at 30 s.
type gateway struct {
	function function
	url      awslambda.FunctionUrl
}

func gatewaySpec(opts options) functionSpec {
	return functionSpec{id: "Gateway", role: config.Gateway,
		description: "The OpenAI endpoints in front of the upstreams",
		// A reply passes through; of a request the body is held, 6 MB at most.
		memory: 512, timeout: lambdaLimit, reserved: opts.gatewayRequests}
}

// newGateway adds the function and its URL, which anybody may call: who may do what
// is decided by our own keys, as it is behind the API. Nobody signs requests with
// AWS credentials who uses an OpenAI client.
func newGateway(stack awscdk.Stack, opts options) *gateway {
	f := newFunction(stack, gatewaySpec(opts), opts)
	return &gateway{function: f, url: f.lambda.AddFunctionUrl(&awslambda.FunctionUrlOptions{
		AuthType:   awslambda.FunctionUrlAuthType_NONE,
		InvokeMode: awslambda.InvokeMode_RESPONSE_STREAM,
	})}
}

// gatewayPermissions: checks keys, looks at the batches that replays name, and writes
// receipts. It changes no batch, sees no line or result of one, and of a key's record
// can write the last use (and what lists it) and nothing that lets anybody in.
func gatewayPermissions(stack awscdk.Stack, s storage, opts options) []awsiam.PolicyStatement {
	touch := allow("dynamodb:UpdateItem").items(s, keyRecords)
	touch.AddCondition(jsii.String("ForAllValues:StringEquals"), map[string]any{
		// v is in the condition of every update.
		"dynamodb:Attributes": []string{"pk", "sk", "v", "last_used", "tenant_pk", "tenant_sk"},
	})
	statements := []awsiam.PolicyStatement{
		allow("dynamodb:GetItem", "dynamodb:BatchGetItem").items(s, keyRecords, tenants, batches), // a key and what its request needs, in one call
		touch,
		allow("dynamodb:PutItem", "dynamodb:UpdateItem").items(s, callReceipts),
	}
	for _, name := range opts.upstreamSecrets() {
		statements = append(statements, readSecret(stack, name)...)
	}
	return statements
}

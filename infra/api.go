package main

import (
	"encoding/json"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsapigatewayv2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsapigatewayv2integrations"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslogs"
	"github.com/aws/jsii-runtime-go"
)

// Throttling of the whole stage, in requests a second. Without it one client in a
// loop takes the account's share of functions, the workers' too.
const (
	apiRate  = 200
	apiBurst = 400
)

// newHTTPAPI sends every request to the api function, which does its own routing:
// an unknown path gets the contract's error body and not the gateway's.
func newHTTPAPI(stack awscdk.Stack, api function) awsapigatewayv2.HttpApi {
	http := awsapigatewayv2.NewHttpApi(stack, jsii.String("HttpApi"), &awsapigatewayv2.HttpApiProps{
		ApiName:            stack.StackName(),
		Description:        jsii.String("Holdfast: OpenAI-compatible files and batches"),
		CreateDefaultStage: jsii.Bool(false),
		DefaultIntegration: awsapigatewayv2integrations.NewHttpLambdaIntegration(jsii.String("Api"), api.lambda,
			&awsapigatewayv2integrations.HttpLambdaIntegrationProps{
				PayloadFormatVersion: awsapigatewayv2.PayloadFormatVersion_VERSION_2_0(),
			}),
	})
	stage := awsapigatewayv2.NewHttpStage(stack, jsii.String("HttpStage"), &awsapigatewayv2.HttpStageProps{
		HttpApi:    http,
		StageName:  jsii.String("$default"),
		AutoDeploy: jsii.Bool(true),
		Throttle: &awsapigatewayv2.ThrottleSettings{
			RateLimit:  jsii.Number(apiRate),
			BurstLimit: jsii.Number(apiBurst),
		},
	})
	logs := awslogs.NewLogGroup(stack, jsii.String("AccessLogs"), &awslogs.LogGroupProps{
		LogGroupName:  jsii.String("/aws/vendedlogs/http-api" + *logGroupName(stack, "access")),
		Retention:     awslogs.RetentionDays_ONE_MONTH,
		RemovalPolicy: awscdk.RemovalPolicy_DESTROY,
	})
	stage.Node().DefaultChild().(awsapigatewayv2.CfnStage).SetAccessLogSettings(
		&awsapigatewayv2.CfnStage_AccessLogSettingsProperty{
			DestinationArn: logs.LogGroupArn(),
			Format:         jsii.String(accessLogFormat()),
		})
	return http
}

// accessLogFormat is one line of JSON a request: enough to find it in the
// function's log, and no header, query or address.
func accessLogFormat() string {
	line, err := json.Marshal(map[string]string{
		"request_id":  "$context.requestId",
		"time":        "$context.requestTime",
		"method":      "$context.httpMethod",
		"path":        "$context.path",
		"status":      "$context.status",
		"bytes":       "$context.responseLength",
		"ms":          "$context.responseLatency",
		"function_ms": "$context.integrationLatency",
		"error":       "$context.integrationErrorMessage",
	})
	if err != nil {
		panic(err) // strings always marshal
	}
	return string(line)
}

// Command canary is a function that the end-to-end tests deploy with the work
// function's role: it tries actions, granted and not, and says which of them
// were denied. It is never part of the stack.
package main

import (
	"context"
	"errors"
	"os"
	"strings"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/sfn"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/smithy-go"

	"holdfast/internal/aws/awsconf"
	"holdfast/internal/config"
)

func main() { lambda.Start(try) }

// try answers with "allowed", "denied …" or what else went wrong, by action.
func try(ctx context.Context) (map[string]string, error) {
	cfg, err := awsconf.Load(ctx)
	if err != nil {
		return nil, err
	}
	table, results, queue := os.Getenv(config.EnvTable), os.Getenv(config.EnvResultsBucket), os.Getenv(config.EnvWorkQueueURL)
	key := map[string]types.AttributeValue{
		"pk": &types.AttributeValueMemberS{Value: "T#canary#B#batch_canary"}, "sk": &types.AttributeValueMemberS{Value: "META"},
	}
	db := dynamodb.NewFromConfig(cfg)
	objects := s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = true })
	put := func(key string) error {
		_, err := objects.PutObject(ctx, &s3.PutObjectInput{Bucket: &results, Key: &key, Body: strings.NewReader("x")})
		return err
	}
	said := map[string]string{}
	for action, err := range map[string]error{
		"dynamodb:UpdateItem": second(db.UpdateItem(ctx, &dynamodb.UpdateItemInput{TableName: &table, Key: key})),
		"dynamodb:DeleteItem": second(db.DeleteItem(ctx, &dynamodb.DeleteItemInput{TableName: &table, Key: key})),
		"dynamodb:Scan":       second(db.Scan(ctx, &dynamodb.ScanInput{TableName: &table})),
		"s3:PutObject parts":  put("canary/parts/batch_canary/0/x.jsonl"),
		"s3:PutObject out":    put("canary/out/batch_canary_output.jsonl"),
		"s3:GetObject parts": second(objects.GetObject(ctx, &s3.GetObjectInput{
			Bucket: &results, Key: aws.String("canary/parts/batch_canary/0/x.jsonl")})),
		"sqs:PurgeQueue": second(sqs.NewFromConfig(cfg).PurgeQueue(ctx, &sqs.PurgeQueueInput{QueueUrl: &queue})),
		"states:StartExecution": second(sfn.NewFromConfig(cfg).StartExecution(ctx, &sfn.StartExecutionInput{
			StateMachineArn: aws.String("arn:aws:states:" + cfg.Region + ":000000000000:stateMachine:canary")})),
		"secretsmanager:ListSecret": second(secretsmanager.NewFromConfig(cfg).ListSecrets(ctx, &secretsmanager.ListSecretsInput{})),
	} {
		said[action] = verdict(err)
	}
	return said, nil
}

func second[T any](_ T, err error) error { return err }

func verdict(err error) string {
	api, isAPI := errors.AsType[smithy.APIError](err)
	switch {
	case err == nil:
		return "allowed"
	case isAPI && strings.Contains(api.ErrorCode(), "AccessDenied"):
		return "denied: " + api.ErrorMessage()
	default:
		return err.Error()
	}
}

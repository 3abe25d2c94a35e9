package dynamo

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/expression"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"holdfast/internal/batch"
)

// Client is what the store calls of *dynamodb.Client.
type Client interface {
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
	PutItem(context.Context, *dynamodb.PutItemInput, ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error)
	DeleteItem(context.Context, *dynamodb.DeleteItemInput, ...func(*dynamodb.Options)) (*dynamodb.DeleteItemOutput, error)
	UpdateItem(context.Context, *dynamodb.UpdateItemInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error)
	TransactWriteItems(context.Context, *dynamodb.TransactWriteItemsInput, ...func(*dynamodb.Options)) (*dynamodb.TransactWriteItemsOutput, error)
	Query(context.Context, *dynamodb.QueryInput, ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error)
	BatchWriteItem(context.Context, *dynamodb.BatchWriteItemInput, ...func(*dynamodb.Options)) (*dynamodb.BatchWriteItemOutput, error)
	BatchGetItem(context.Context, *dynamodb.BatchGetItemInput, ...func(*dynamodb.Options)) (*dynamodb.BatchGetItemOutput, error)
}

// Store is the table, one field a port. It is safe for concurrent use.
type Store struct {
	Batches  *Batches
	Endings  *Endings
	Parts    *Parts
	Claims   *Claims
	Seals    *Seals
	Reaps    *Reaps
	Deaths   *Deaths
	Events   *Events
	Files    *Files
	Keys     *Keys
	Tenants  *Tenants
	Uploads  *Uploads
	Bridge   *Bridge
	Sends    *Sends
	Receipts *Receipts
}

// Open returns the store over the table of this name. It makes no call.
func Open(cfg aws.Config, name string) *Store { return New(dynamodb.NewFromConfig(cfg), name) }

// New is Open over a client that exists already. The client's retries are the
// store's only ones.
func New(client Client, name string) *Store {
	t := &table{counted{client}, name}
	return &Store{
		&Batches{t}, &Endings{t}, &Parts{t}, &Claims{t}, &Seals{t}, &Reaps{t}, &Deaths{t}, &Events{t},
		&Files{t}, &Keys{t}, &Tenants{t}, &Uploads{t}, &Bridge{t}, &Sends{t}, &Receipts{t},
	}
}

// table makes the calls that the ports share.
type table struct {
	client Client
	name   string
}

// write is one row of the design's table: what must hold, and what then becomes
// of the item.
type write struct {
	when expression.ConditionBuilder
	then expression.UpdateBuilder
}

// outcome is what a conditional write came to.
type outcome struct {
	item    attributes // as it is now or, when refused, as it was found; nil: there is none
	refused bool
}

// update applies w to the item under k. A condition that fails is no error but
// an outcome. With answer false the written item isn't returned: a checkpoint's
// answer would carry every chunk.
func (t *table) update(ctx context.Context, k key, w write, answer bool) (outcome, error) {
	e, err := expression.NewBuilder().WithCondition(readable(w.when)).WithUpdate(w.then).Build()
	if err != nil {
		return outcome{}, fmt.Errorf("build expression: %w", err)
	}
	in := &dynamodb.UpdateItemInput{
		TableName: &t.name, Key: k.attributes(),
		ConditionExpression: e.Condition(), UpdateExpression: e.Update(),
		ExpressionAttributeNames: e.Names(), ExpressionAttributeValues: e.Values(),
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}
	if answer {
		in.ReturnValues = types.ReturnValueAllNew
	}
	out, err := t.client.UpdateItem(ctx, in)
	if old, ok := refusal(err); ok {
		return outcome{old, true}, nil
	}
	if err != nil {
		return outcome{}, err
	}
	return outcome{out.Attributes, false}, nil
}

// insert writes a whole item if the condition holds.
func (t *table) insert(ctx context.Context, item any, when expression.ConditionBuilder) (outcome, error) {
	a, err := encode(item)
	if err != nil {
		return outcome{}, err
	}
	e, err := expression.NewBuilder().WithCondition(when).Build()
	if err != nil {
		return outcome{}, fmt.Errorf("build expression: %w", err)
	}
	_, err = t.client.PutItem(ctx, &dynamodb.PutItemInput{
		TableName: &t.name, Item: a,
		ConditionExpression: e.Condition(), ExpressionAttributeNames: e.Names(), ExpressionAttributeValues: e.Values(),
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	if old, ok := refusal(err); ok {
		return outcome{old, true}, nil
	}
	return outcome{a, false}, err
}

// remove deletes an item if the condition holds.
func (t *table) remove(ctx context.Context, k key, when expression.ConditionBuilder) (outcome, error) {
	e, err := expression.NewBuilder().WithCondition(readable(when)).Build()
	if err != nil {
		return outcome{}, fmt.Errorf("build expression: %w", err)
	}
	_, err = t.client.DeleteItem(ctx, &dynamodb.DeleteItemInput{
		TableName: &t.name, Key: k.attributes(),
		ConditionExpression: e.Condition(), ExpressionAttributeNames: e.Names(), ExpressionAttributeValues: e.Values(),
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	if old, ok := refusal(err); ok {
		return outcome{old, true}, nil
	}
	return outcome{}, err
}

// get reads an item, strongly consistent. batch.ErrNotFound.
func (t *table) get(ctx context.Context, k key) (attributes, error) {
	out, err := t.client.GetItem(ctx, &dynamodb.GetItemInput{
		TableName: &t.name, Key: k.attributes(), ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		return nil, err
	}
	if out.Item == nil {
		return nil, batch.ErrNotFound
	}
	return out.Item, nil
}

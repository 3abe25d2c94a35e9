package dynamo

import (
	"context"
	"errors"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"holdfast/internal/aws/meter"
)

// counted is a Client that asks what each call consumed and tells the meter. The
// calls themselves the meter counts where they leave the process.
type counted struct{ client Client }

// total asks for one number, both indexes included.
const total = types.ReturnConsumedCapacityTotal

func (c counted) GetItem(ctx context.Context, in *dynamodb.GetItemInput, o ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error) {
	in.ReturnConsumedCapacity = total
	out, err := c.client.GetItem(ctx, in, o...)
	if err == nil {
		read(ctx, "DynamoDB.GetItem", out.ConsumedCapacity)
	}
	return out, err
}

func (c counted) Query(ctx context.Context, in *dynamodb.QueryInput, o ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error) {
	in.ReturnConsumedCapacity = total
	out, err := c.client.Query(ctx, in, o...)
	if err == nil {
		read(ctx, "DynamoDB.Query", out.ConsumedCapacity)
	}
	return out, err
}

func (c counted) BatchGetItem(ctx context.Context, in *dynamodb.BatchGetItemInput, o ...func(*dynamodb.Options)) (*dynamodb.BatchGetItemOutput, error) {
	in.ReturnConsumedCapacity = total
	out, err := c.client.BatchGetItem(ctx, in, o...)
	if err == nil {
		for _, table := range out.ConsumedCapacity {
			read(ctx, "DynamoDB.BatchGetItem", &table)
		}
	}
	return out, err
}

func (c counted) BatchWriteItem(ctx context.Context, in *dynamodb.BatchWriteItemInput, o ...func(*dynamodb.Options)) (*dynamodb.BatchWriteItemOutput, error) {
	in.ReturnConsumedCapacity = total
	out, err := c.client.BatchWriteItem(ctx, in, o...)
	if err == nil {
		for _, table := range out.ConsumedCapacity {
			wrote(ctx, "DynamoDB.BatchWriteItem", &table, nil)
		}
	}
	return out, err
}

func (c counted) PutItem(ctx context.Context, in *dynamodb.PutItemInput, o ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	in.ReturnConsumedCapacity = total
	out, err := c.client.PutItem(ctx, in, o...)
	if err == nil {
		wrote(ctx, "DynamoDB.PutItem", out.ConsumedCapacity, nil)
	} else {
		wrote(ctx, "DynamoDB.PutItem", nil, err)
	}
	return out, err
}

func (c counted) UpdateItem(ctx context.Context, in *dynamodb.UpdateItemInput, o ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	in.ReturnConsumedCapacity = total
	out, err := c.client.UpdateItem(ctx, in, o...)
	if err == nil {
		wrote(ctx, "DynamoDB.UpdateItem", out.ConsumedCapacity, nil)
	} else {
		wrote(ctx, "DynamoDB.UpdateItem", nil, err)
	}
	return out, err
}

func (c counted) DeleteItem(ctx context.Context, in *dynamodb.DeleteItemInput, o ...func(*dynamodb.Options)) (*dynamodb.DeleteItemOutput, error) {
	in.ReturnConsumedCapacity = total
	out, err := c.client.DeleteItem(ctx, in, o...)
	if err == nil {
		wrote(ctx, "DynamoDB.DeleteItem", out.ConsumedCapacity, nil)
	} else {
		wrote(ctx, "DynamoDB.DeleteItem", nil, err)
	}
	return out, err
}

func read(ctx context.Context, operation string, c *types.ConsumedCapacity) {
	if c != nil {
		meter.Units(ctx, operation, aws.ToFloat64(c.CapacityUnits), 0)
	}
}

// wrote counts a write. One that was refused is billed too, by the item that it
// found, but its answer doesn't say so.
func wrote(ctx context.Context, operation string, c *types.ConsumedCapacity, err error) {
	if old, refused := refusal(err); refused {
		meter.Units(ctx, operation, 0, writeUnits(sizeOfItem(old)))
		return
	}
	if c != nil {
		meter.Units(ctx, operation, 0, aws.ToFloat64(c.CapacityUnits))
	}
}

// TransactWriteItems counts both of a transaction's units for each item; one that
// was cancelled is billed too, and counts as items of 1 KB.
func (c counted) TransactWriteItems(ctx context.Context, in *dynamodb.TransactWriteItemsInput, o ...func(*dynamodb.Options)) (*dynamodb.TransactWriteItemsOutput, error) {
	in.ReturnConsumedCapacity = total
	out, err := c.client.TransactWriteItems(ctx, in, o...)
	const operation = "DynamoDB.TransactWriteItems"
	if _, cancelled := errors.AsType[*types.TransactionCanceledException](err); cancelled {
		meter.Units(ctx, operation, 0, float64(2*len(in.TransactItems)))
	}
	if err == nil {
		for _, table := range out.ConsumedCapacity {
			wrote(ctx, operation, &table, nil)
		}
	}
	return out, err
}

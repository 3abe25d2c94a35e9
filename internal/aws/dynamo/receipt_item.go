package dynamo

import (
	"time"

	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/expression"

	"holdfast/internal/access"
)

// receiptKey: a shelf is a partition, so that a list is one query. A thousand writes
// a second are what a partition takes, and a call is two.
func receiptKey(n access.ReceiptName) key { return key{receiptShelf(n.Tenant, n.Shelf()), n.ID()} }

func receiptShelf(tenant, shelf string) string { return "RC#" + tenant + "#" + shelf }

// receiptItem is one receipt of the gateway.
type receiptItem struct {
	head
	Tenant      string `dynamodbav:"tenant"`
	Batch       string `dynamodbav:"batch,omitempty"`
	StartedAt   int64  `dynamodbav:"started_at"`
	RequestID   string `dynamodbav:"request_id"`
	Line        *int64 `dynamodbav:"line,omitempty"`
	OnBehalfOf  string `dynamodbav:"on_behalf_of"`
	Key         string `dynamodbav:"key"`
	Endpoint    string `dynamodbav:"endpoint"`
	Model       string `dynamodbav:"model,omitempty"`
	RequestHash string `dynamodbav:"request_sha256"`
	TTL         int64  `dynamodbav:"ttl"` // Unix seconds

	Completion *completionItem `dynamodbav:"completion,omitempty"` // absent until there is one: a condition asks for that
}

type completionItem struct {
	At         int64          `dynamodbav:"at"`
	Outcome    access.Outcome `dynamodbav:"outcome"`
	Status     int            `dynamodbav:"status"`
	Usage      *usageItem     `dynamodbav:"usage,omitempty"`
	ReplyHash  string         `dynamodbav:"reply_sha256,omitempty"`
	ReplyBytes int64          `dynamodbav:"reply_bytes"`
	Millis     int64          `dynamodbav:"ms"`
}

// newReceiptItem is what is stored of an intent.
func newReceiptItem(r access.Receipt) receiptItem {
	return receiptItem{
		head:   newHead(receiptKey(r.ReceiptName), time.Time{}),
		Tenant: r.Tenant, Batch: r.Batch, StartedAt: millis(r.StartedAt), RequestID: r.RequestID,
		Line: r.Line, OnBehalfOf: r.OnBehalfOf, Key: r.Key, Endpoint: r.Endpoint, Model: r.Model, RequestHash: r.RequestHash,
		TTL: r.StartedAt.Add(access.ReceiptLife).Unix(),
	}
}

func newCompletionItem(c access.Completion) completionItem {
	i := completionItem{
		At: millis(c.Time), Outcome: c.Outcome, Status: c.Status, ReplyHash: c.ReplyHash, ReplyBytes: c.ReplyBytes, Millis: c.Millis,
	}
	if c.Usage != nil {
		u := newUsageItem(*c.Usage)
		i.Usage = &u
	}
	return i
}

func (i receiptItem) receipt() access.Receipt {
	r := access.Receipt{
		ReceiptName: access.ReceiptName{Tenant: i.Tenant, Batch: i.Batch, StartedAt: fromMillis(i.StartedAt), RequestID: i.RequestID},
		Line:        i.Line, OnBehalfOf: i.OnBehalfOf, Key: i.Key, Endpoint: i.Endpoint, Model: i.Model, RequestHash: i.RequestHash,
	}
	if c := i.Completion; c != nil {
		r.Completion = &access.Completion{
			Time: fromMillis(c.At), Outcome: c.Outcome, Status: c.Status, ReplyHash: c.ReplyHash, ReplyBytes: c.ReplyBytes, Millis: c.Millis,
		}
		if c.Usage != nil {
			u := c.Usage.usage()
			r.Usage = &u
		}
	}
	return r
}

// The writes of a receipt, which have no number in the design's table. As in
// conditions.go. That there is one at all is asked with its version (readable).

func insertReceipt() expression.ConditionBuilder { return absent() }

// completeReceipt says how a call ended. That it has not ended yet keeps what was
// said first:
//
//  1. A completion's answer is lost; it is sent again, and both arrive: equal ones.
//  2. Another, of a handler that was thought to be over, must not make a torn reply a
//     whole one afterwards.
func completeReceipt(c access.Completion) write {
	return write{
		when: name("completion").AttributeNotExists(),
		then: expression.Set(name("completion"), value(newCompletionItem(c))),
	}
}

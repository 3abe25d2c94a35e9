package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/attributevalue"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"holdfast/internal/openai"
)

// verdict is what became of a batch.
type verdict struct {
	status           string
	lines, completed int
	repeated, most   int // lines sent more than once, and how often the worst was
	extra, lapses    int // requests beyond one a line; leases that ended by themselves
	faults           []string
}

func (v verdict) String() string {
	return fmt.Sprintf("%s, %d of %d lines completed; %d lines were sent again (%d requests more, one line %d times at most), %d leases lapsed",
		v.status, v.completed, v.lines, v.repeated, v.extra, v.most, v.lapses)
}

func (v *verdict) fault(format string, args ...any) {
	if len(v.faults) < 10 {
		v.faults = append(v.faults, fmt.Sprintf(format, args...))
	}
}

// verify waits for the end of a batch and holds it to the promises. crash is what
// a lapsed lease may repeat.
func (s *stack) verify(ctx context.Context, b begun, crash int) (v verdict, err error) {
	if _, err := s.until(ctx, b, len(b.bodies)+1); err != nil {
		return v, err
	}
	end, err := s.progress(ctx, b)
	if err != nil {
		return v, err
	}
	v.status, v.lines, v.completed = end.Status, len(b.bodies), end.RequestCounts.Completed
	want := openai.RequestCounts{Total: len(b.bodies), Completed: len(b.bodies)}
	if end.Status != openai.StatusCompleted || end.RequestCounts != want || end.OutputFileID == nil || end.ErrorFileID != nil {
		v.fault("batch %s is %s, %+v", b.id, end.Status, end.RequestCounts)
		return v, nil
	}
	out, err := s.content(ctx, *end.OutputFileID)
	if err != nil {
		return v, err
	}
	n := 0
	for line := range bytes.Lines(out) {
		var got struct {
			CustomID string `json:"custom_id"`
			Response struct {
				Body json.RawMessage `json:"body"`
			} `json:"response"`
		}
		if err := json.Unmarshal(line, &got); err != nil {
			return v, fmt.Errorf("output line %d: %w", n+1, err)
		}
		if n >= len(b.bodies) || got.CustomID != customID(n) {
			v.fault("output line %d is %s", n+1, got.CustomID)
			return v, nil
		}
		if !bytes.Contains(got.Response.Body, []byte(sum(b.bodies[n]))) {
			v.fault("line %d has another line's reply", n)
		}
		n++
	}
	if n != len(b.bodies) {
		v.fault("%d output lines for %d", n, len(b.bodies))
	}
	if err := s.tries(ctx, b, &v); err != nil {
		return v, err
	}
	if v.lapses, err = s.lapses(ctx, b.id); err != nil {
		return v, err
	}
	if v.extra > v.lapses*crash {
		v.fault("%d requests beyond one a line, and %d lapsed leases allow %d", v.extra, v.lapses, v.lapses*crash)
	}
	return v, nil
}

func (s *stack) tries(ctx context.Context, b begun, v *verdict) error {
	a, err := s.account(ctx, b.id)
	if err != nil {
		return err
	}
	for i, body := range b.bodies {
		line := a.Lines[strconv.Itoa(i)]
		switch {
		case line.Tries == 0:
			v.fault("line %d was never sent", i)
		case line.Sum != sum(body):
			v.fault("line %d reached the model changed", i)
		case line.Tries > 1:
			v.repeated++
			v.extra += line.Tries - 1
		}
		v.most = max(v.most, line.Tries)
	}
	return nil
}

// lapses sums over the batch's parts.
func (s *stack) lapses(ctx context.Context, batch string) (n int, err error) {
	// The tenant is that of the local stack's key.
	pages := dynamodb.NewQueryPaginator(dynamodb.NewFromConfig(s.cfg), &dynamodb.QueryInput{
		TableName: aws.String(os.Getenv("HOLDFAST_TABLE")), KeyConditionExpression: aws.String("pk = :p AND begins_with(sk, :s)"),
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":p": &types.AttributeValueMemberS{Value: "T#demo#B#" + batch}, ":s": &types.AttributeValueMemberS{Value: "PART#"},
		},
	})
	parts := 0
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return 0, fmt.Errorf("read the parts: %w", err)
		}
		for _, i := range page.Items {
			var p struct {
				Lapses int `dynamodbav:"lapses"`
			}
			if err := attributevalue.UnmarshalMap(i, &p); err != nil {
				return 0, err
			}
			n += p.Lapses
			parts++
		}
	}
	if parts == 0 {
		return 0, fmt.Errorf("batch %s has no parts in the table", batch)
	}
	return n, nil
}

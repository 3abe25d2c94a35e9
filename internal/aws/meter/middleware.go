package meter

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"holdfast/internal/cost"
)

// Count makes every client of cfg count its calls, whatever service it is of.
func Count(cfg *aws.Config) {
	cfg.APIOptions = append(cfg.APIOptions, func(stack *middleware.Stack) error {
		// Inside the retries, so that each try counts: each is a request to AWS. The
		// last before the wire, so that the answer is as it came. A URL that is only
		// signed never comes here.
		return stack.Deserialize.Add(counter{}, middleware.After)
	})
}

type counter struct{}

// ID names the middleware in its stack.
func (counter) ID() string { return "HoldfastMeter" }

// HandleDeserialize counts one try of a call.
//
// What is billed of those that failed differs: S3 bills refusals (4xx) but not its
// own errors (5xx), the table bills units and no calls, SQS says nothing. So the
// two are counted apart and package cost decides. A connection that broke before
// the answer counts as failed.
func (counter) HandleDeserialize(ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler) (
	middleware.DeserializeOutput, middleware.Metadata, error) {
	out, metadata, err := next.HandleDeserialize(ctx, in)
	var c cost.Calls
	if r, ok := in.Request.(*smithyhttp.Request); ok && r.ContentLength > 0 {
		c.Sent = r.ContentLength
	}
	answer, ok := out.RawResponse.(*smithyhttp.Response)
	if ok && answer != nil && answer.Response != nil && answer.StatusCode > 0 && answer.StatusCode < 500 {
		c.Answered = 1
		c.Received = max(answer.ContentLength, 0)
	} else {
		c.Failed = 1
	}
	add(ctx, awsmiddleware.GetServiceID(ctx)+"."+awsmiddleware.GetOperationName(ctx), c)
	return out, metadata, err
}

package meter_test

import (
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"holdfast/internal/aws/awstest"
	"holdfast/internal/aws/meter"
	"holdfast/internal/batch"
)

// A URL that is only signed is no request yet, and is still signed.
func TestPresignIsNoCall(t *testing.T) {
	cfg := awstest.Server(t, nil)
	meter.Count(&cfg)
	ctx, r := meter.Begin(t.Context())
	signed, err := s3.NewPresignClient(s3.NewFromConfig(cfg)).PresignGetObject(ctx,
		&s3.GetObjectInput{Bucket: aws.String("b"), Key: aws.String("k")}, s3.WithPresignExpires(time.Minute))
	if err != nil || signed.URL == "" {
		t.Fatalf("%+v, %v", signed, err)
	}
	if got := r.Shares(nil, batch.Subject{}); len(got) != 0 {
		t.Errorf("counted %+v", got)
	}
}

package main

import (
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/aws-cdk-go/awscdk/v2/awss3"
	"github.com/aws/jsii-runtime-go"

	"holdfast/internal/config"
)

const (
	day = 24 * time.Hour

	chunkDays   = 7         // chunks are deleted when their batch closes; this is the backstop
	receiptDays = 365       // receipts, and so whatever else lies in the results bucket
	uploadDays  = 7         // an upload nobody completed or aborted
	uploadGrace = time.Hour // as internal/upload has it: a completion begun in time may end so much later
	askedDays   = 30        // the longest that whoever uploads or submits may ask for (contract, expires_after)
	markerDays  = 7         // the least that a replaced or deleted input stays readable
)

type storage struct {
	inputs, results awss3.Bucket
	table           awsdynamodb.Table
}

func newStorage(stack awscdk.Stack, opts options) storage {
	removal := awscdk.RemovalPolicy_RETAIN
	if opts.destroy {
		removal = awscdk.RemovalPolicy_DESTROY
	}
	return storage{
		inputs:  newInputs(stack, opts, removal),
		results: newResults(stack, opts, removal),
		table:   newTable(stack, opts, removal),
	}
}

func bucketProps(removal awscdk.RemovalPolicy) *awss3.BucketProps {
	return &awss3.BucketProps{
		BlockPublicAccess: awss3.BlockPublicAccess_BLOCK_ALL(),
		Encryption:        awss3.BucketEncryption_S3_MANAGED,
		EnforceSSL:        jsii.Bool(true),
		ObjectOwnership:   awss3.ObjectOwnership_BUCKET_OWNER_ENFORCED,
		RemovalPolicy:     removal,
	}
}

// newInputs makes the bucket of uploaded files. It is versioned because a batch
// is pinned to the version it was created from.
func newInputs(stack awscdk.Stack, opts options, removal awscdk.RemovalPolicy) awss3.Bucket {
	props := bucketProps(removal)
	props.Versioned = jsii.Bool(true)
	props.LifecycleRules = &[]*awss3.LifecycleRule{
		{
			// S3 counts an object that was sent in pieces from when it was begun; its
			// record counts from the completion, which may be an upload's life later.
			Id:         jsii.String("expire-files"),
			Prefix:     jsii.String("files/"),
			Expiration: days(kept(opts) + opts.settings.UploadExpiry + uploadGrace),
			// A batch may go on reading what was deleted, until its workflow ends.
			NoncurrentVersionExpiration: days(replacedKept(opts)),
		},
		{
			// What was put there to start a batch lives as long as its file's record, which
			// doesn't hear of it when somebody puts another version in its place.
			Id:                          jsii.String("expire-dropped"),
			Prefix:                      jsii.String(dropped),
			Expiration:                  days(kept(opts)),
			NoncurrentVersionExpiration: days(max(kept(opts), replacedKept(opts))),
		},
		{
			// Parts of uploads: gone when their upload is completed or cancelled; these are
			// of those that nobody did either with, and of what a crash left.
			Id:                          jsii.String("expire-parts"),
			Prefix:                      jsii.String("uploads/"),
			Expiration:                  days(opts.settings.UploadExpiry + day),
			NoncurrentVersionExpiration: days(replacedKept(opts)),
		},
		{
			// Of its own: S3 takes this beside no expiration in the same rule.
			Id:                        jsii.String("remove-delete-markers"),
			ExpiredObjectDeleteMarker: jsii.Bool(true),
		},
		abortUploads(),
	}
	return awss3.NewBucket(stack, jsii.String("Inputs"), props)
}

// newResults makes the bucket of chunks, plans and output files. Keys begin with
// the tenant, so the rules select by the tag that every writer sets.
func newResults(stack awscdk.Stack, opts options, removal awscdk.RemovalPolicy) awss3.Bucket {
	props := bucketProps(removal)
	keep := func(kind string, life time.Duration) *awss3.LifecycleRule {
		return &awss3.LifecycleRule{
			Id:         jsii.String("expire-" + kind),
			TagFilters: &map[string]any{config.KeepTag: kind},
			Expiration: days(life),
		}
	}
	props.LifecycleRules = &[]*awss3.LifecycleRule{
		keep(config.KeepChunk, chunkDays*day),
		keep(config.KeepPlan, planKept(opts)),
		keep(config.KeepResult, kept(opts)),
		keep(config.KeepReceipts, receiptDays*day),
		{
			// Whatever lost its tag is kept no longer than what is kept longest.
			Id:         jsii.String("expire-everything"),
			Expiration: days(max(receiptDays*day, kept(opts))),
		},
		abortUploads(),
	}
	return awss3.NewBucket(stack, jsii.String("Results"), props)
}

// kept is the longest that a file's record can promise: no object may vanish
// before it. Which of them expires earlier is the record's to say.
func kept(opts options) time.Duration { return max(opts.settings.FileExpiry, askedDays*day) }

// replacedKept is how long an input stays readable that was deleted or overwritten. Of
// rules that overlap S3 takes the shorter, so each prefix has its own.
func replacedKept(opts options) time.Duration {
	return max(opts.settings.WaitTimeout+day, markerDays*day)
}

// planKept is how long the lists of wide batches' parts stay: a Distributed Map
// reads on in its own while there are parts to begin, for as long as an execution
// may last.
func planKept(opts options) time.Duration {
	return max(chunkDays*day, executionLimit(opts.settings)+day)
}

func abortUploads() *awss3.LifecycleRule {
	return &awss3.LifecycleRule{
		Id:                                  jsii.String("abort-uploads"),
		AbortIncompleteMultipartUploadAfter: days(uploadDays * day),
	}
}

// days rounds up: S3 counts whole days, and nothing may vanish early.
func days(d time.Duration) awscdk.Duration {
	return awscdk.Duration_Days(jsii.Number(float64((d + day - 1) / day)))
}

func newTable(stack awscdk.Stack, opts options, removal awscdk.RemovalPolicy) awsdynamodb.Table {
	table := awsdynamodb.NewTable(stack, jsii.String("Table"), &awsdynamodb.TableProps{
		PartitionKey:        text("pk"),
		SortKey:             text("sk"),
		BillingMode:         awsdynamodb.BillingMode_PAY_PER_REQUEST,
		TimeToLiveAttribute: jsii.String("ttl"),
		PointInTimeRecoverySpecification: &awsdynamodb.PointInTimeRecoverySpecification{
			PointInTimeRecoveryEnabled: jsii.Bool(true),
		},
		DeletionProtection: jsii.Bool(!opts.destroy),
		RemovalPolicy:      removal,
	})
	table.AddGlobalSecondaryIndex(&awsdynamodb.GlobalSecondaryIndexProps{
		IndexName:      jsii.String("due"),
		PartitionKey:   text("due_pk"),
		SortKey:        &awsdynamodb.Attribute{Name: jsii.String("due_at"), Type: awsdynamodb.AttributeType_NUMBER},
		ProjectionType: awsdynamodb.ProjectionType_KEYS_ONLY,
	})
	table.AddGlobalSecondaryIndex(&awsdynamodb.GlobalSecondaryIndexProps{
		IndexName:      jsii.String("tenant"),
		PartitionKey:   text("tenant_pk"),
		SortKey:        text("tenant_sk"),
		ProjectionType: awsdynamodb.ProjectionType_ALL,
	})
	return table
}

func text(name string) *awsdynamodb.Attribute {
	return &awsdynamodb.Attribute{Name: jsii.String(name), Type: awsdynamodb.AttributeType_STRING}
}

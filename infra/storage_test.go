package main

import (
	"strings"
	"testing"
	"time"

	"github.com/aws/jsii-runtime-go"

	"holdfast/internal/upload"
)

func TestBuckets(t *testing.T) {
	for _, name := range []string{"Inputs", "Results"} {
		bucket := account.only(t, "AWS::S3::Bucket", name)
		same(t, name+" public access", bucket.Properties["PublicAccessBlockConfiguration"], object{
			"BlockPublicAcls": true, "BlockPublicPolicy": true, "IgnorePublicAcls": true, "RestrictPublicBuckets": true,
		})
		same(t, name+" encryption", bucket.Properties["BucketEncryption"], object{
			"ServerSideEncryptionConfiguration": []any{object{"ServerSideEncryptionByDefault": object{"SSEAlgorithm": "AES256"}}},
		})
		same(t, name+" ownership", bucket.Properties["OwnershipControls"], object{
			"Rules": []any{object{"ObjectOwnership": "BucketOwnerEnforced"}},
		})
		policy := account.only(t, "AWS::S3::BucketPolicy", name+"Policy").Properties
		if got := statements(policy["PolicyDocument"]); got != "Deny * s3:* on ${"+name+".Arn},${"+name+".Arn}/* if {\"Bool\":{\"aws:SecureTransport\":\"false\"}}" {
			t.Errorf("%s policy: %s", name, got)
		}
	}
	same(t, "inputs versioning", account.only(t, "AWS::S3::Bucket", "Inputs").Properties["VersioningConfiguration"], object{"Status": "Enabled"})
}

func TestLifecycle(t *testing.T) {
	abort := object{"AbortIncompleteMultipartUpload": object{"DaysAfterInitiation": 7}, "Id": "abort-uploads", "Status": "Enabled"}
	rules := func(s synthesized, name string) any {
		return s.only(t, "AWS::S3::Bucket", name).Properties["LifecycleConfiguration"].(object)["Rules"]
	}
	tagged := func(kind string, days int) object {
		return object{"ExpirationInDays": days, "Id": "expire-" + kind, "Status": "Enabled",
			"TagFilters": []any{object{"Key": "keep", "Value": kind}}}
	}
	same(t, "inputs", rules(account, "Inputs"), []any{
		object{"ExpirationInDays": 32, "Id": "expire-files", "NoncurrentVersionExpiration": object{"NoncurrentDays": 7}, "Prefix": "files/", "Status": "Enabled"},
		// Overwritten the moment after it was put, it still lives as long as its record says.
		object{"ExpirationInDays": 30, "Id": "expire-dropped", "NoncurrentVersionExpiration": object{"NoncurrentDays": 30}, "Prefix": "in/", "Status": "Enabled"},
		object{"ExpirationInDays": 2, "Id": "expire-parts", "NoncurrentVersionExpiration": object{"NoncurrentDays": 7}, "Prefix": "uploads/", "Status": "Enabled"},
		object{"ExpiredObjectDeleteMarker": true, "Id": "remove-delete-markers", "Status": "Enabled"},
		abort,
	})
	same(t, "results", rules(account, "Results"), []any{
		tagged("chunk", 7), tagged("plan", 7), tagged("result", 30), tagged("receipt", 365),
		object{"ExpirationInDays": 365, "Id": "expire-everything", "Status": "Enabled"},
		abort,
	})
	// 745 hours, 24 in which the upload may take its time, and 1 of grace are 33 of
	// S3's days: nothing vanishes early.
	same(t, "a file's life in whole days", rules(local, "Inputs").([]any)[0].(object)["ExpirationInDays"], 33)
	// What was dropped has no such time before it.
	same(t, "a drop's life in whole days", rules(local, "Inputs").([]any)[1].(object)["ExpirationInDays"], 32)
	// A plan outlives every execution that may read it.
	long := account.opts
	long.settings.WaitTimeout = 14 * day
	same(t, "a plan's life beside the longest waits", planKept(long), 29*day)
	// A client may ask for 30 days, however short the default is.
	short := account.opts
	short.settings.FileExpiry = 25 * time.Hour
	same(t, "the least that objects are kept", kept(short), 30*day)
}

func TestRemoval(t *testing.T) {
	for _, c := range []struct {
		stack      synthesized
		policy     string
		protection bool
	}{{account, "Retain", true}, {local, "Delete", false}} {
		for _, r := range []resource{
			c.stack.only(t, "AWS::S3::Bucket", "Inputs"), c.stack.only(t, "AWS::S3::Bucket", "Results"), c.stack.only(t, "AWS::DynamoDB::Table", ""),
		} {
			if r.DeletionPolicy != c.policy {
				t.Errorf("%s is deleted by %q, want %q", r.Type, r.DeletionPolicy, c.policy)
			}
		}
		same(t, "deletion protection", c.stack.only(t, "AWS::DynamoDB::Table", "").Properties["DeletionProtectionEnabled"], c.protection)
	}
}

func TestTable(t *testing.T) {
	got := account.only(t, "AWS::DynamoDB::Table", "").Properties
	same(t, "table", got, object{
		"KeySchema": []any{
			object{"AttributeName": "pk", "KeyType": "HASH"}, object{"AttributeName": "sk", "KeyType": "RANGE"},
		},
		"AttributeDefinitions": []any{
			object{"AttributeName": "pk", "AttributeType": "S"}, object{"AttributeName": "sk", "AttributeType": "S"},
			object{"AttributeName": "due_pk", "AttributeType": "S"}, object{"AttributeName": "due_at", "AttributeType": "N"},
			object{"AttributeName": "tenant_pk", "AttributeType": "S"}, object{"AttributeName": "tenant_sk", "AttributeType": "S"},
		},
		"GlobalSecondaryIndexes": []any{
			object{"IndexName": "due", "Projection": object{"ProjectionType": "KEYS_ONLY"}, "KeySchema": []any{
				object{"AttributeName": "due_pk", "KeyType": "HASH"}, object{"AttributeName": "due_at", "KeyType": "RANGE"},
			}},
			object{"IndexName": "tenant", "Projection": object{"ProjectionType": "ALL"}, "KeySchema": []any{
				object{"AttributeName": "tenant_pk", "KeyType": "HASH"}, object{"AttributeName": "tenant_sk", "KeyType": "RANGE"},
			}},
		},
		"BillingMode":                      "PAY_PER_REQUEST",
		"TimeToLiveSpecification":          object{"AttributeName": "ttl", "Enabled": true},
		"PointInTimeRecoverySpecification": object{"PointInTimeRecoveryEnabled": true},
		"DeletionProtectionEnabled":        true,
	})
}

// No function of somebody else runs in the account: CDK's notification and
// auto-delete helpers are such.
func TestNoForeignFunctions(t *testing.T) {
	for id, r := range account.resources {
		if strings.HasPrefix(r.Type, "Custom::") || r.Type == "AWS::CloudFormation::CustomResource" {
			t.Errorf("custom resource %s %s", r.Type, id)
		}
	}
	account.template.ResourceCountIs(jsii.String("AWS::Lambda::Function"), jsii.Number(7))
}

// infra sees only config; what it repeats of another package is held here.
func TestGraceOfUploads(t *testing.T) {
	same(t, "grace", uploadGrace, upload.Grace)
}

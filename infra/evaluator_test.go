package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// roleStatement is one statement of a role's policies, as IAM reads it, with
// references written by [plain].
type roleStatement struct {
	deny               bool
	actions, resources []string
	conditions         map[string]map[string][]string // by operator and key
}

// statementsOf are the statements of every role of the stack, by the role's name
// without "Role". What the evaluator doesn't understand it refuses: a grant in other
// words than these would be one that no test looks at.
func statementsOf(t *testing.T, s *synthesized) map[string][]roleStatement {
	t.Helper()
	all := map[string][]roleStatement{}
	for id, r := range s.resources {
		if r.Type != "AWS::IAM::Policy" {
			continue
		}
		var parsed []roleStatement
		for _, raw := range list(r.Properties["PolicyDocument"].(object)["Statement"]) {
			one := roleStatement{conditions: map[string]map[string][]string{}}
			for member, value := range raw.(object) {
				switch member {
				case "Effect":
					one.deny = value == "Deny"
				case "Action":
					one.actions = texts(value) // in the case that everybody writes; IAM reads any
				case "Resource":
					one.resources = texts(value)
				case "Condition":
					for operator, keys := range value.(object) {
						one.conditions[operator] = map[string][]string{}
						for key, values := range keys.(object) {
							one.conditions[operator][key] = texts(values)
						}
					}
				default:
					t.Fatalf("%s: a statement with %s", id, member)
				}
			}
			parsed = append(parsed, one)
		}
		for _, role := range list(r.Properties["Roles"]) {
			name := strings.TrimSuffix(strings.Trim(plain(role), "${}"), "Role")
			all[name] = append(all[name], parsed...)
		}
	}
	return all
}

func texts(value any) (all []string) {
	for _, v := range list(value) {
		all = append(all, plain(v))
	}
	return all
}

// asked is one request, with the condition keys that AWS would give it.
type asked struct {
	action, resource string
	context          map[string][]string
}

// may is IAM's decision: no statement that denies, and one that allows.
func may(statements []roleStatement, q asked) bool {
	allowed := false
	for _, s := range statements {
		if !matches(s.actions, q.action) || !matches(s.resources, q.resource) || !s.met(q) {
			continue
		}
		if s.deny {
			return false
		}
		allowed = true
	}
	return allowed
}

// met evaluates the operators that are used here. Any other is taken as met where it
// bounds a grant, and as not met where it bounds a denial: then more is allowed
// than there is, and a test fails.
func (s roleStatement) met(q asked) bool {
	for operator, keys := range s.conditions {
		for key, patterns := range keys {
			values, there := q.context[key]
			switch operator {
			case "ForAllValues:StringLike": // true of no value
				for _, v := range values {
					if !matches(patterns, v) {
						return false
					}
				}
			case "ForAllValues:StringEquals":
				for _, v := range values {
					if !slices.Contains(patterns, v) {
						return false
					}
				}
			case "StringLike", "ArnEquals":
				if !there || !matches(patterns, values[0]) {
					return false
				}
			default:
				if s.deny {
					return false
				}
			}
		}
	}
	return true
}

// matches reports whether one of the patterns, in which * and ? are as in IAM, is of
// the whole text.
func matches(patterns []string, text string) bool {
	for _, p := range patterns {
		if like(p, text) {
			return true
		}
	}
	return false
}

func like(pattern, text string) bool {
	// Where the last * was, and how much of the text it takes so far.
	star, taken, p, i := -1, 0, 0, 0
	for i < len(text) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, taken = p, i
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == text[i]):
			p++
			i++
		case star >= 0:
			taken++
			p, i = star+1, taken
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// probe is one thing that somebody may be after, and what each role may do to it:
// those and no other. Actions are without their service.
type probe struct {
	service, what, resource string
	context                 map[string][]string
	want                    map[string]string // by role
}

// actions are what is asked of a resource, by service: everything that the template
// grants, and what would be worse.
var actions = map[string][]string{
	"dynamodb": {
		"BatchGetItem", "BatchWriteItem", "ConditionCheckItem", "DeleteItem", "GetItem", "PutItem", "Query", "UpdateItem",
		"CreateBackup", "DeleteTable", "DescribeTable", "ExportTableToPointInTime", "PartiQLDelete", "PartiQLInsert", "PartiQLSelect", "PartiQLUpdate",
		"PutResourcePolicy", "RestoreTableToPointInTime", "Scan", "UpdateTable", "UpdateTimeToLive",
	},
	"s3": {
		"AbortMultipartUpload", "BypassGovernanceRetention", "DeleteBucket", "DeleteBucketPolicy", "DeleteObject", "DeleteObjectVersion", "GetObject", "GetObjectTagging", "GetObjectVersion",
		"ListBucket", "ListBucketVersions", "ListMultipartUploadParts", "PutBucketAcl", "PutBucketNotification", "PutBucketPolicy", "PutBucketVersioning",
		"PutLifecycleConfiguration", "PutObject", "PutObjectAcl", "PutObjectTagging",
	},
	"sqs": {
		"AddPermission", "ChangeMessageVisibility", "DeleteMessage", "DeleteQueue", "GetQueueAttributes", "PurgeQueue", "ReceiveMessage",
		"SendMessage", "SendMessageBatch", "SetQueueAttributes", "StartMessageMoveTask",
	},
	"states": {
		"DeleteStateMachine", "DescribeExecution", "GetActivityTask", "GetExecutionHistory", "RedriveExecution", "SendTaskFailure", "SendTaskHeartbeat",
		"SendTaskSuccess", "StartExecution", "StartSyncExecution", "StopExecution", "UpdateStateMachine",
	},
	"secretsmanager": {"DeleteSecret", "DescribeSecret", "GetSecretValue", "ListSecrets", "PutResourcePolicy", "PutSecretValue", "UpdateSecret"},
	"lambda":         {"AddPermission", "GetFunction", "GetFunctionConfiguration", "InvokeFunction", "InvokeFunctionUrl", "UpdateFunctionCode", "UpdateFunctionConfiguration"},
	"logs": {
		"CreateLogDelivery", "CreateLogGroup", "CreateLogStream", "DeleteLogDelivery", "DeleteLogGroup", "DescribeLogGroups", "DescribeResourcePolicies", "FilterLogEvents",
		"GetLogDelivery", "GetLogEvents", "ListLogDeliveries", "PutLogEvents", "PutResourcePolicy", "StartQuery", "UpdateLogDelivery",
	},
	"iam": {"AttachRolePolicy", "CreateAccessKey", "PassRole", "PutRolePolicy"},
	"sts": {"AssumeRole"},
	"kms": {"CreateGrant", "Decrypt"},
	"ec2": {
		"AssignPrivateIpAddresses", "AuthorizeSecurityGroupEgress", "CreateNetworkInterface", "DeleteNetworkInterface", "DescribeNetworkInterfaces", "DescribeSubnets",
		"ModifyNetworkInterfaceAttribute", "RunInstances", "UnassignPrivateIpAddresses",
	},
}

// keyed are the calls in which AWS knows the items' keys beforehand; a condition on
// them says nothing of the others.
var keyed = []string{"BatchGetItem", "BatchWriteItem", "ConditionCheckItem", "DeleteItem", "GetItem", "PutItem", "Query", "UpdateItem"}

// covers reports whether these statements allow all that s does: each of its actions
// on each of its resources, for every kind of item that it names.
func covers(statements []roleStatement, s roleStatement) bool {
	for _, action := range s.actions {
		for _, resource := range s.resources {
			context := map[string][]string{}
			for _, keys := range s.conditions {
				maps.Copy(context, keys)
			}
			each := []map[string][]string{context}
			if kinds := context[itemsOf]; len(kinds) > 0 {
				each = nil
				for _, kind := range kinds {
					one := maps.Clone(context)
					one[itemsOf] = []string{kind}
					each = append(each, one)
				}
			}
			for _, context := range each {
				if !may(statements, asked{action, resource, context}) {
					return false
				}
			}
		}
	}
	return true
}

// faults compares what the roles may do with what they should, in words.
func faults(roles map[string][]roleStatement, probes []probe) (all []string) {
	for _, p := range probes {
		for _, name := range slices.Sorted(maps.Keys(roles)) {
			if got, want, ok := p.right(name, roles[name]); !ok {
				all = append(all, fmt.Sprintf("%s may, of %s, %v; it should %v", name, p.what, got, want))
			}
		}
		for name := range p.want {
			if roles[name] == nil {
				all = append(all, fmt.Sprintf("%s: no role %s", p.what, name))
			}
		}
	}
	return all
}

// right compares what a role of this name and these statements may do with what it
// should.
func (p probe) right(name string, statements []roleStatement) (got, want []string, ok bool) {
	for _, action := range actions[p.service] {
		q := asked{p.service + ":" + action, p.resource, p.context}
		if p.service == "dynamodb" && !slices.Contains(keyed, action) {
			q.context = nil
		}
		if may(statements, q) {
			got = append(got, action)
		}
	}
	want = strings.Fields(p.want[name])
	slices.Sort(got)
	slices.Sort(want)
	return got, want, slices.Equal(got, want)
}

// The evaluator itself, by cases whose answer AWS documents.
func TestEvaluator(t *testing.T) {
	read := roleStatement{actions: []string{"dynamodb:Get*"}, resources: []string{"arn:t"},
		conditions: map[string]map[string][]string{"ForAllValues:StringLike": {"dynamodb:LeadingKeys": {"T#*"}}}}
	key := func(keys ...string) map[string][]string { return map[string][]string{"dynamodb:LeadingKeys": keys} }
	deny := roleStatement{deny: true, actions: []string{"*"}, resources: []string{"*"},
		conditions: map[string]map[string][]string{"ArnEquals": {"lambda:SourceFunctionArn": {"arn:f"}}}}
	secret := roleStatement{actions: []string{"s:Get"}, resources: []string{"a-??????"}}
	for _, c := range []struct {
		what       string
		statements []roleStatement
		q          asked
		want       bool
	}{
		{"a wildcard in an action", []roleStatement{read}, asked{"dynamodb:GetItem", "arn:t", key("T#a")}, true},
		{"a wildcard that takes nothing", []roleStatement{read}, asked{"dynamodb:Get", "arn:t", key("T#a")}, true},
		{"two wildcards", []roleStatement{{actions: []string{"s:*"}, resources: []string{"b/*/out/*.j"}}}, asked{"s:Get", "b/x/y/out/out/z.j", nil}, true},
		{"two wildcards, and the text between them", []roleStatement{{actions: []string{"s:*"}, resources: []string{"b/*/out/*.j"}}}, asked{"s:Get", "b/x/out.j", nil}, false},
		{"another action", []roleStatement{read}, asked{"dynamodb:PutItem", "arn:t", key("T#a")}, false},
		{"another resource", []roleStatement{read}, asked{"dynamodb:GetItem", "arn:t/index", key("T#a")}, false},
		{"resources in this case only", []roleStatement{read}, asked{"dynamodb:GetItem", "ARN:T", key("T#a")}, false},
		{"another key", []roleStatement{read}, asked{"dynamodb:GetItem", "arn:t", key("KEY#a")}, false},
		{"one of two keys", []roleStatement{read}, asked{"dynamodb:GetItem", "arn:t", key("T#a", "KEY#a")}, false},
		{"ForAllValues of none", []roleStatement{read}, asked{"dynamodb:GetItem", "arn:t", nil}, true},
		{"? is one character", []roleStatement{secret}, asked{"s:Get", "a-123456", nil}, true},
		{"and no more", []roleStatement{secret}, asked{"s:Get", "a-b-123456", nil}, false},
		{"a denial wins", []roleStatement{read, deny}, asked{"dynamodb:GetItem", "arn:t", map[string][]string{"lambda:SourceFunctionArn": {"arn:f"}}}, false},
		{"where its condition holds", []roleStatement{read, deny}, asked{"dynamodb:GetItem", "arn:t", nil}, true},
		{"nothing is granted by nothing", nil, asked{"dynamodb:GetItem", "arn:t", nil}, false},
	} {
		if got := may(c.statements, c.q); got != c.want {
			t.Errorf("%s: %v", c.what, got)
		}
	}
}

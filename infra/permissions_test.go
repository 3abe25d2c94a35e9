package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// statements writes a policy document one statement a line:
// Effect [principal] actions on resources [if condition].
func statements(document any) string {
	var lines []string
	for _, s := range list(document.(object)["Statement"]) {
		statement := s.(object)
		line := statement["Effect"].(string)
		if principal, ok := statement["Principal"]; ok {
			if kinds, ok := principal.(object); ok { // else it is "*"
				for _, of := range []string{"AWS", "Service"} {
					if kinds[of] != nil {
						principal = kinds[of]
					}
				}
			}
			line += " " + plain(principal)
		}
		line += " " + joined(statement["Action"])
		if statement["Resource"] != nil {
			line += " on " + joined(statement["Resource"])
		}
		if statement["Condition"] != nil {
			line += " if " + plain(statement["Condition"])
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func joined(value any) string {
	var out []string
	for _, v := range list(value) {
		out = append(out, plain(v))
	}
	return strings.Join(out, ",")
}

func keys(beginnings ...string) string {
	return fmt.Sprintf(` if {"ForAllValues:StringLike":{"dynamodb:LeadingKeys":["%s"]}}`, strings.Join(beginnings, `","`))
}

func readsSecret(name string) string {
	return "Allow secretsmanager:GetSecretValue on arn:${AWS::Partition}:secretsmanager:${AWS::Region}:${AWS::AccountId}:secret:" + name + "-??????"
}

// What each role may do, whole. A grant that widens turns this red; so does one
// that the local AWS doesn't enforce (the workflow's, the event source's, the
// leading keys of the table) and that is dropped.
var rolePolicies = map[string][]string{
	"Api": {
		"Allow logs:CreateLogStream,logs:PutLogEvents on ${ApiLogs.Arn}",
		"Allow dynamodb:GetItem on ${Table.Arn}" + keys("KEY#*", "TENANT#*", "T#*", "F#*", "BR#*", "RS#*", "U#*"),
		"Allow dynamodb:BatchGetItem on ${Table.Arn}" + keys("KEY#*", "TENANT#*"),
		"Allow dynamodb:Query on ${Table.Arn}" + keys("T#*", "RC#*"),
		"Allow dynamodb:PutItem,dynamodb:UpdateItem on ${Table.Arn}" + keys("KEY#*", "T#*", "F#*", "BR#*", "RS#*", "U#*"),
		"Allow dynamodb:DeleteItem on ${Table.Arn}" + keys("BR#*"),
		"Allow dynamodb:Query on ${Table.Arn}/index/tenant" + keys("B#*", "F#*", "KEYS#*"),
		"Allow s3:PutObject,s3:GetObject,s3:GetObjectVersion,s3:DeleteObject on ${Inputs.Arn}/files/*",
		"Allow s3:GetObject,s3:GetObjectVersion on ${Inputs.Arn}/in/*",
		"Allow s3:PutObject,s3:GetObject,s3:DeleteObject on ${Inputs.Arn}/uploads/*",
		"Allow s3:ListMultipartUploadParts,s3:AbortMultipartUpload on ${Inputs.Arn}/files/*",
		"Allow s3:ListBucket on ${Inputs.Arn},${Results.Arn}",
		"Allow s3:GetObject on ${Results.Arn}/*/out/*",
		"Allow s3:DeleteObject on ${Results.Arn}/*/out/*_output.jsonl,${Results.Arn}/*/out/*_error.jsonl",
		"Allow states:StartExecution on ${Workflow}",
		"Allow states:DescribeExecution,states:StopExecution on arn:${AWS::Partition}:states:${AWS::Region}:${AWS::AccountId}:execution:${Workflow.Name}:*",
		"Allow dynamodb:BatchGetItem,dynamodb:BatchWriteItem,dynamodb:ConditionCheckItem on ${Table.Arn}" + keys("T#*"),
		"Allow dynamodb:Query on ${Table.Arn}/index/due" + keys("DUE#*", "DEAD#*"),
		"Allow sqs:SendMessage,sqs:SendMessageBatch on ${WorkQueue.Arn}",
		"Allow states:SendTaskSuccess on *",
	},
	"Reap": {
		"Allow logs:CreateLogStream,logs:PutLogEvents on ${ReapLogs.Arn}",
		"Allow dynamodb:GetItem,dynamodb:BatchGetItem,dynamodb:Query,dynamodb:UpdateItem,dynamodb:BatchWriteItem on ${Table.Arn}" + keys("T#*"),
		"Allow dynamodb:Query on ${Table.Arn}/index/due" + keys("DUE#*", "DEAD#*"),
		"Allow sqs:SendMessage,sqs:SendMessageBatch on ${WorkQueue.Arn}",
		"Allow sqs:ReceiveMessage,sqs:DeleteMessage on ${DeadLetters.Arn}",
		"Allow states:StartExecution on ${Workflow}",
		"Allow states:DescribeExecution,states:StopExecution on arn:${AWS::Partition}:states:${AWS::Region}:${AWS::AccountId}:execution:${Workflow.Name}:*",
		"Allow states:SendTaskSuccess on *",
		"Allow dynamodb:GetItem,dynamodb:UpdateItem,dynamodb:DeleteItem on ${Table.Arn}" + keys("BR#*"),
		"Allow dynamodb:GetItem,dynamodb:PutItem on ${Table.Arn}" + keys("F#*"),
		"Allow dynamodb:PutItem on ${Table.Arn}" + keys("T#*"),
		"Allow dynamodb:GetItem on ${Table.Arn}" + keys("TENANT#*"),
		"Allow dynamodb:Query on ${Table.Arn}/index/tenant" + keys("B#*"),
		readsSecret("holdfast/jobs"),
	},
	"Ingest": {
		"Allow logs:CreateLogStream,logs:PutLogEvents on ${IngestLogs.Arn}",
		"Allow dynamodb:GetItem on ${Table.Arn}" + keys("TENANT#*", "T#*", "F#*", "BR#*"),
		"Allow dynamodb:Query on ${Table.Arn}" + keys("T#*"),
		"Allow dynamodb:Query on ${Table.Arn}/index/tenant" + keys("B#*"),
		"Allow dynamodb:PutItem on ${Table.Arn}" + keys("T#*", "F#*", "BR#*"),
		"Allow dynamodb:UpdateItem,dynamodb:DeleteItem on ${Table.Arn}" + keys("BR#*"),
		"Allow s3:GetObject,s3:GetObjectVersion on ${Inputs.Arn}/in/*",
		"Allow s3:ListBucket on ${Inputs.Arn}",
		`Allow s3:ListBucketVersions on ${Inputs.Arn} if {"StringLike":{"s3:prefix":"in/*"}}`,
		"Allow s3:PutObject,s3:PutObjectTagging on ${Results.Arn}/*/in/*",
		"Allow states:StartExecution on ${Workflow}",
		"Allow states:DescribeExecution on arn:${AWS::Partition}:states:${AWS::Region}:${AWS::AccountId}:execution:${Workflow.Name}:*",
		"Allow sqs:ReceiveMessage,sqs:DeleteMessage,sqs:ChangeMessageVisibility,sqs:GetQueueAttributes on ${IngestQueue.Arn}",
		"Allow sqs:SendMessage on ${IngestDeadLetters.Arn}",
		readsSecret("holdfast/jobs"),
	},
	"Plan": {
		"Allow logs:CreateLogStream,logs:PutLogEvents on ${PlanLogs.Arn}",
		"Allow dynamodb:GetItem,dynamodb:Query,dynamodb:PutItem,dynamodb:UpdateItem on ${Table.Arn}" + keys("T#*"),
		"Allow s3:GetObject,s3:GetObjectVersion on ${Inputs.Arn}/files/*,${Inputs.Arn}/in/*",
		"Allow s3:ListBucket on ${Inputs.Arn}",
		"Allow s3:PutObject,s3:PutObjectTagging on ${Results.Arn}/*/plan/*",
	},
	"Work": {
		"Allow logs:CreateLogStream,logs:PutLogEvents on ${WorkLogs.Arn}",
		"Allow dynamodb:GetItem,dynamodb:UpdateItem,dynamodb:PutItem on ${Table.Arn}" + keys("T#*"),
		"Allow s3:GetObject,s3:GetObjectVersion on ${Inputs.Arn}/files/*,${Inputs.Arn}/in/*",
		"Allow s3:PutObject,s3:PutObjectTagging on ${Results.Arn}/*/parts/*",
		"Allow s3:ListBucket on ${Inputs.Arn}",
		"Allow sqs:ReceiveMessage,sqs:DeleteMessage,sqs:ChangeMessageVisibility,sqs:SendMessage,sqs:GetQueueAttributes on ${WorkQueue.Arn}",
		"Allow states:SendTaskSuccess on *",
		readsSecret("holdfast/upstream"),
		readsSecret("holdfast/openai"),
	},
	"Gateway": {
		"Allow logs:CreateLogStream,logs:PutLogEvents on ${GatewayLogs.Arn}",
		"Allow dynamodb:GetItem,dynamodb:BatchGetItem on ${Table.Arn}" + keys("KEY#*", "TENANT#*", "T#*"),
		`Allow dynamodb:UpdateItem on ${Table.Arn} if {"ForAllValues:StringEquals":{"dynamodb:Attributes":["pk","sk","v","last_used","tenant_pk","tenant_sk"]},` +
			`"ForAllValues:StringLike":{"dynamodb:LeadingKeys":["KEY#*"]}}`,
		"Allow dynamodb:PutItem,dynamodb:UpdateItem on ${Table.Arn}" + keys("RC#*"),
		readsSecret("holdfast/upstream"),
		readsSecret("holdfast/openai"),
	},
	"Finish": {
		"Allow logs:CreateLogStream,logs:PutLogEvents on ${FinishLogs.Arn}",
		"Allow dynamodb:GetItem,dynamodb:Query,dynamodb:UpdateItem on ${Table.Arn}" + keys("T#*"),
		"Allow dynamodb:GetItem,dynamodb:PutItem on ${Table.Arn}" + keys("F#*"),
		"Allow s3:GetObject,s3:GetObjectVersion on ${Inputs.Arn}/files/*,${Inputs.Arn}/in/*",
		"Allow s3:GetObject,s3:DeleteObject on ${Results.Arn}/*/parts/*",
		"Allow s3:PutObject,s3:PutObjectTagging on ${Results.Arn}/*/parts/*/finish/*",
		"Allow s3:GetObject,s3:PutObject,s3:PutObjectTagging,s3:ListMultipartUploadParts,s3:AbortMultipartUpload on ${Results.Arn}/*/out/*",
		"Allow s3:ListBucket on ${Inputs.Arn},${Results.Arn}",
	},
	"Workflow": {
		"Allow lambda:InvokeFunction on ${Plan.Arn},${Finish.Arn}",
		"Allow sqs:SendMessage on ${WorkQueue.Arn}",
		"Allow s3:GetObject on ${Results.Arn}/*/plan/*",
		"Allow logs:CreateLogDelivery,logs:GetLogDelivery,logs:UpdateLogDelivery,logs:DeleteLogDelivery,logs:ListLogDeliveries," +
			"logs:PutResourcePolicy,logs:DescribeResourcePolicies,logs:DescribeLogGroups on *",
	},
}

func TestRolePolicies(t *testing.T) {
	for name, want := range rolePolicies {
		policy := account.only(t, "AWS::IAM::Policy", name+"Role").Properties
		if got := statements(policy["PolicyDocument"]); got != strings.Join(want, "\n") {
			t.Errorf("%s\n got\n%s\nwant\n%s", name, got, strings.Join(want, "\n"))
		}
		if roles := list(policy["Roles"]); len(roles) != 1 || plain(roles[0]) != "${"+name+"Role}" {
			t.Errorf("%s policy is for %v", name, roles)
		}
	}
}

// The workflow's second policy: what a Distributed Map needs of its own state
// machine, none of which the local AWS checks. With the wrong label in it, or
// without StartExecution, no wide batch would run.
func TestMapPolicy(t *testing.T) {
	const executions = "arn:${AWS::Partition}:states:${AWS::Region}:${AWS::AccountId}:execution:${Workflow.Name}"
	policy := account.only(t, "AWS::IAM::Policy", "WorkflowMap").Properties
	want := "Allow states:StartExecution on ${Workflow}\n" +
		"Allow states:DescribeExecution,states:StopExecution on " + executions + ":*," + executions + "/parts:*"
	if got := statements(policy["PolicyDocument"]); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if roles := list(policy["Roles"]); len(roles) != 1 || plain(roles[0]) != "${WorkflowRole}" {
		t.Errorf("it is for %v", roles)
	}
	same(t, "label", stateNamed(t, deployed(t, &account), "Many parts")["Label"], "parts")
}

// Nothing grants beside the table above and the Map's.
func TestNoOtherGrants(t *testing.T) {
	var roles, policies int
	for id, r := range account.resources {
		switch r.Type {
		case "AWS::IAM::Role":
			roles++
			if r.Properties["ManagedPolicyArns"] != nil || r.Properties["Policies"] != nil {
				t.Errorf("%s has grants of its own", id)
			}
		case "AWS::IAM::Policy":
			policies++
		case "AWS::IAM::ManagedPolicy", "AWS::IAM::User", "AWS::IAM::Group":
			t.Errorf("%s %s", r.Type, id)
		}
	}
	if roles != len(rolePolicies) || policies != len(rolePolicies)+1 {
		t.Errorf("%d roles with %d policies, %d and one more are known", roles, policies, len(rolePolicies))
	}
}

func TestTrust(t *testing.T) {
	for name := range rolePolicies {
		service := "lambda.amazonaws.com"
		if name == "Workflow" {
			service = "states.amazonaws.com"
		}
		got := statements(account.only(t, "AWS::IAM::Role", name+"Role").Properties["AssumeRolePolicyDocument"])
		if want := "Allow " + service + " sts:AssumeRole"; got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// Without a secret there is no grant to read one.
func TestSecretOnlyWhenConfigured(t *testing.T) {
	reads := map[string]string{"Work": "holdfast/upstream", "Gateway": "holdfast/upstream", "Ingest": "holdfast/jobs", "Reap": "holdfast/jobs"}
	for name := range reads {
		got := statements(local.only(t, "AWS::IAM::Policy", name+"Role").Properties["PolicyDocument"])
		if strings.Contains(got, "secretsmanager") {
			t.Errorf("granted:\n%s", got)
		}
	}
	for name, role := range rolePolicies {
		if reads[name] == "" && slices.ContainsFunc(role, func(s string) bool { return strings.Contains(s, "secretsmanager") }) {
			t.Errorf("%s reads secrets", name)
		}
	}
}

// Only this API may call api, and only its two rules reap; the gateway's URL is open
// to all, its keys are not; nobody but the roles above calls the others.
func TestInvokePermissions(t *testing.T) {
	var got []string
	for _, r := range account.resources {
		if r.Type == "AWS::Lambda::Permission" {
			got = append(got, fmt.Sprintf("%v calls %s from %s", r.Properties["Principal"], plain(r.Properties["FunctionName"]), plain(r.Properties["SourceArn"])))
		}
	}
	slices.Sort(got)
	same(t, "permissions", got, []string{
		"* calls ${Gateway.Arn} from null", // see TestGatewayURL
		"* calls ${Gateway.Arn} from null",
		"apigateway.amazonaws.com calls ${Api.Arn} from arn:${AWS::Partition}:execute-api:${AWS::Region}:${AWS::AccountId}:${HttpApi}/*/*",
		"events.amazonaws.com calls ${Reap.Arn} from ${ReapFallen.Arn}",
		"events.amazonaws.com calls ${Reap.Arn} from ${ReapTick.Arn}",
	})
}

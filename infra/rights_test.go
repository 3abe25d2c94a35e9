package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

const (
	arnOf     = "arn:${AWS::Partition}:%s:${AWS::Region}:${AWS::AccountId}:"
	tableARN  = "${Table.Arn}"
	itemsOf   = "dynamodb:LeadingKeys"
	readInput = "GetObject GetObjectVersion"
)

func under(key string) map[string][]string { return map[string][]string{itemsOf: {key}} }

func secretNamed(name string) string {
	return fmt.Sprintf(arnOf, "secretsmanager") + "secret:" + name + "-Ab12Cd"
}

func execution(name string) string { return fmt.Sprintf(arnOf, "states") + "execution:" + name }

// rights is what every role may do to everything that is worth asking for. Nothing
// else is allowed of these resources, to these roles or any other of the stack.
var rights = []probe{
	// Keys: the door that checks them, and the one that manages them.
	{"dynamodb", "an API key's record", tableARN, under("KEY#9f86d081"), map[string]string{
		"Api": "GetItem BatchGetItem PutItem UpdateItem", "Gateway": "GetItem BatchGetItem UpdateItem"}},
	{"dynamodb", "an API key's scopes", tableARN, map[string][]string{itemsOf: {"KEY#9f86d081"}, "dynamodb:Attributes": {"pk", "sk", "scopes"}}, map[string]string{
		"Api": "GetItem BatchGetItem PutItem UpdateItem", "Gateway": "GetItem BatchGetItem"}},
	{"dynamodb", "an API key's last use", tableARN, map[string][]string{itemsOf: {"KEY#9f86d081"}, "dynamodb:Attributes": {"pk", "sk", "v", "last_used", "tenant_pk", "tenant_sk"}}, map[string]string{
		"Api": "GetItem BatchGetItem PutItem UpdateItem", "Gateway": "GetItem BatchGetItem UpdateItem"}},
	{"dynamodb", "a key and a batch in one call", tableARN, map[string][]string{itemsOf: {"KEY#9f86d081", "T#acme#B#batch_1"}}, map[string]string{
		"Api": "GetItem PutItem UpdateItem", "Gateway": "GetItem BatchGetItem"}}, // which of these take one item each
	{"dynamodb", "a tenant's keys", tableARN + "/index/tenant", under("KEYS#acme"), map[string]string{"Api": "Query"}},

	// Tenants' limits and doors: written by the operator alone.
	{"dynamodb", "a tenant's record", tableARN, under("TENANT#acme"), map[string]string{
		"Api": "GetItem BatchGetItem", "Reap": "GetItem", "Ingest": "GetItem", "Gateway": "GetItem BatchGetItem"}},
	{"dynamodb", "the list of tenants", tableARN + "/index/tenant", under("TENANTS"), nil},

	{"dynamodb", "a batch, its parts and events", tableARN, under("T#acme#B#batch_1"), map[string]string{
		"Api":  "GetItem BatchGetItem Query PutItem UpdateItem BatchWriteItem ConditionCheckItem",
		"Plan": "GetItem Query PutItem UpdateItem", "Work": "GetItem PutItem UpdateItem", "Finish": "GetItem Query UpdateItem",
		"Reap": "GetItem BatchGetItem Query PutItem UpdateItem BatchWriteItem", "Ingest": "GetItem Query PutItem", "Gateway": "GetItem BatchGetItem"}},
	{"dynamodb", "a file's record", tableARN, under("F#acme"), map[string]string{
		"Api": "GetItem PutItem UpdateItem", "Finish": "GetItem PutItem", "Reap": "GetItem PutItem", "Ingest": "GetItem PutItem"}},
	{"dynamodb", "a claim on a correlation id", tableARN, under("BR#acme#order-1"), map[string]string{
		"Api": "GetItem PutItem UpdateItem DeleteItem", "Reap": "GetItem UpdateItem DeleteItem", "Ingest": "GetItem PutItem UpdateItem DeleteItem"}},
	{"dynamodb", "a send that named none", tableARN, under("RS#acme#1"), map[string]string{"Api": "GetItem PutItem UpdateItem"}},
	{"dynamodb", "an upload's record", tableARN, under("U#acme"), map[string]string{"Api": "GetItem PutItem UpdateItem"}},
	{"dynamodb", "a receipt of the gateway", tableARN, under("RC#acme#batch_1"), map[string]string{"Gateway": "PutItem UpdateItem", "Api": "Query"}},
	{"dynamodb", "items of a kind that nobody knows", tableARN, under("NEW#acme"), nil},
	{"dynamodb", "a tenant's batches", tableARN + "/index/tenant", under("B#acme"), map[string]string{"Api": "Query", "Ingest": "Query", "Reap": "Query"}},
	{"dynamodb", "a tenant's files", tableARN + "/index/tenant", under("F#acme"), map[string]string{"Api": "Query"}},
	{"dynamodb", "what is due", tableARN + "/index/due", under("DUE#7"), map[string]string{"Api": "Query", "Reap": "Query"}},
	{"dynamodb", "batches by another index", tableARN + "/index/due", under("NEW#acme"), nil},
	{"dynamodb", "whatever else a tenant has", tableARN + "/index/tenant", under("NEW#acme"), nil},
	{"dynamodb", "what is dead", tableARN + "/index/due", under("DEAD#7"), map[string]string{"Api": "Query", "Reap": "Query"}},

	// Objects. A chunk is the worker's to write and the finisher's to read.
	{"s3", "a chunk", "${Results.Arn}/acme/parts/batch_1/00000000/tok-1.jsonl", nil, map[string]string{
		"Work": "PutObject PutObjectTagging", "Finish": "GetObject DeleteObject"}},
	{"s3", "a finisher's tail", "${Results.Arn}/acme/parts/batch_1/finish/output-1", nil, map[string]string{
		"Work": "PutObject PutObjectTagging", "Finish": "GetObject DeleteObject PutObject PutObjectTagging"}},
	{"s3", "the list of a batch's parts", "${Results.Arn}/acme/plan/batch_1.jsonl", nil, map[string]string{
		"Plan": "PutObject PutObjectTagging", "Workflow": "GetObject"}},
	{"s3", "an output file", "${Results.Arn}/acme/out/batch_1_output.jsonl", nil, map[string]string{
		"Api": "GetObject DeleteObject", "Finish": "GetObject PutObject PutObjectTagging ListMultipartUploadParts AbortMultipartUpload"}},
	{"s3", "an error file", "${Results.Arn}/acme/out/batch_1_error.jsonl", nil, map[string]string{
		"Api": "GetObject DeleteObject", "Finish": "GetObject PutObject PutObjectTagging ListMultipartUploadParts AbortMultipartUpload"}},
	{"s3", "a receipts file", "${Results.Arn}/acme/out/batch_1_receipts.jsonl", nil, map[string]string{
		"Api": "GetObject", "Finish": "GetObject PutObject PutObjectTagging ListMultipartUploadParts AbortMultipartUpload"}},
	{"s3", "an error object of the S3 door", "${Results.Arn}/acme/in/a.jsonl.error.json", nil, map[string]string{"Ingest": "PutObject PutObjectTagging"}},
	{"s3", "an object among the results that nobody knows", "${Results.Arn}/acme/new/1", nil, nil},
	{"s3", "the names of results", "${Results.Arn}", nil, map[string]string{"Api": "ListBucket", "Finish": "ListBucket"}},
	{"s3", "an uploaded file", "${Inputs.Arn}/files/acme/file-1", nil, map[string]string{
		"Api":  readInput + " PutObject DeleteObject ListMultipartUploadParts AbortMultipartUpload",
		"Plan": readInput, "Work": readInput, "Finish": readInput}},
	{"s3", "a dropped object", "${Inputs.Arn}/in/acme/a.jsonl", nil, map[string]string{
		"Api": readInput, "Plan": readInput, "Work": readInput, "Finish": readInput, "Ingest": readInput}},
	{"s3", "a part of an upload", "${Inputs.Arn}/uploads/acme/upload-1/1", nil, map[string]string{"Api": "GetObject PutObject DeleteObject"}},
	{"s3", "an object among the inputs that nobody knows", "${Inputs.Arn}/new/acme", nil, nil},
	{"s3", "the names of inputs", "${Inputs.Arn}", nil, map[string]string{
		"Api": "ListBucket", "Plan": "ListBucket", "Work": "ListBucket", "Finish": "ListBucket", "Ingest": "ListBucket"}},
	{"s3", "the versions of dropped objects", "${Inputs.Arn}", map[string][]string{"s3:prefix": {"in/acme/"}}, map[string]string{
		"Api": "ListBucket", "Plan": "ListBucket", "Work": "ListBucket", "Finish": "ListBucket", "Ingest": "ListBucket ListBucketVersions"}},
	{"s3", "the versions of uploaded files", "${Inputs.Arn}", map[string][]string{"s3:prefix": {"files/"}}, map[string]string{
		"Api": "ListBucket", "Plan": "ListBucket", "Work": "ListBucket", "Finish": "ListBucket", "Ingest": "ListBucket"}},
	{"s3", "the versions of results", "${Results.Arn}", map[string][]string{"s3:prefix": {"in/acme/"}}, map[string]string{"Api": "ListBucket", "Finish": "ListBucket"}},
	{"s3", "another bucket", "arn:${AWS::Partition}:s3:::other", nil, nil},
	{"s3", "another bucket's object", "arn:${AWS::Partition}:s3:::other/acme/out/a", nil, nil},

	// Secrets: each by whoever sends it, and by its whole name.
	{"secretsmanager", "the upstream's secret", secretNamed("holdfast/upstream"), nil, map[string]string{"Work": "GetSecretValue", "Gateway": "GetSecretValue"}},
	{"secretsmanager", "another upstream's secret", secretNamed("holdfast/openai"), nil, map[string]string{"Work": "GetSecretValue", "Gateway": "GetSecretValue"}},
	{"secretsmanager", "the secret of the service of jobs", secretNamed("holdfast/jobs"), nil, map[string]string{"Ingest": "GetSecretValue", "Reap": "GetSecretValue"}},
	{"secretsmanager", "a secret whose name begins so", secretNamed("holdfast/upstream-other"), nil, nil},
	{"secretsmanager", "a secret of somebody else", secretNamed("other"), nil, nil},

	{"sqs", "the work queue", "${WorkQueue.Arn}", nil, map[string]string{
		"Api": "SendMessage SendMessageBatch", "Reap": "SendMessage SendMessageBatch", "Workflow": "SendMessage",
		"Work": "ReceiveMessage DeleteMessage ChangeMessageVisibility SendMessage GetQueueAttributes"}},
	{"sqs", "the dead letters", "${DeadLetters.Arn}", nil, map[string]string{"Reap": "ReceiveMessage DeleteMessage"}},
	{"sqs", "the ingest queue", "${IngestQueue.Arn}", nil, map[string]string{"Ingest": "ReceiveMessage DeleteMessage ChangeMessageVisibility GetQueueAttributes"}},
	{"sqs", "the ingest queue's dead letters", "${IngestDeadLetters.Arn}", nil, map[string]string{"Ingest": "SendMessage"}},
	{"sqs", "another queue", fmt.Sprintf(arnOf, "sqs") + "other", nil, nil},

	{"states", "the state machine", "${Workflow}", nil, map[string]string{
		"Api": "StartExecution SendTaskSuccess", "Reap": "StartExecution SendTaskSuccess", "Ingest": "StartExecution", "Workflow": "StartExecution", "Work": "SendTaskSuccess"}},
	{"states", "a batch's execution", execution("${Workflow.Name}:batch_1"), nil, map[string]string{
		"Api": "DescribeExecution StopExecution SendTaskSuccess", "Reap": "DescribeExecution StopExecution SendTaskSuccess", "Ingest": "DescribeExecution",
		"Workflow": "DescribeExecution StopExecution", "Work": "SendTaskSuccess"}},
	{"states", "a part's execution", execution("${Workflow.Name}/parts:1"), nil, map[string]string{
		"Workflow": "DescribeExecution StopExecution", "Api": "SendTaskSuccess", "Reap": "SendTaskSuccess", "Work": "SendTaskSuccess"}},
	{"states", "an execution of another Map", execution("${Workflow.Name}/other:1"), nil, map[string]string{
		"Api": "SendTaskSuccess", "Reap": "SendTaskSuccess", "Work": "SendTaskSuccess"}},
	// The task token is the capability: of any state machine, success alone.
	{"states", "another state machine's execution", execution("other:1"), nil, map[string]string{
		"Api": "SendTaskSuccess", "Reap": "SendTaskSuccess", "Work": "SendTaskSuccess"}},

	{"lambda", "plan", "${Plan.Arn}", nil, map[string]string{"Workflow": "InvokeFunction"}},
	{"lambda", "finish", "${Finish.Arn}", nil, map[string]string{"Workflow": "InvokeFunction"}},
	{"lambda", "work", "${Work.Arn}", nil, nil},
	{"lambda", "gateway", "${Gateway.Arn}", nil, nil},
	{"logs", "another log", fmt.Sprintf(arnOf, "logs") + "log-group:other:*", nil, map[string]string{"Workflow": delivery}},
	{"iam", "a role", fmt.Sprintf(arnOf, "iam") + "role/other", nil, nil},
	{"kms", "a key of KMS", fmt.Sprintf(arnOf, "kms") + "key/other", nil, nil},
	{"ec2", "a network interface", fmt.Sprintf(arnOf, "ec2") + "network-interface/other", nil, nil},
}

// Of each kind of item nobody may do anything in another table or index, and each
// function writes its own log alone.
func init() {
	for _, kind := range kinds {
		rights = append(rights,
			probe{"dynamodb", "another table's " + kind, fmt.Sprintf(arnOf, "dynamodb") + "table/Other", under(kind + "acme"), nil},
			probe{"dynamodb", "another index's " + kind, tableARN + "/index/other", under(kind + "acme"), nil})
	}
	for _, name := range []string{"Api", "Plan", "Work", "Finish", "Reap", "Ingest", "Gateway"} {
		rights = append(rights, probe{"logs", "the log of " + name, "${" + name + "Logs.Arn}", nil,
			map[string]string{"Workflow": delivery, name: "CreateLogStream PutLogEvents"}})
	}
}

// kinds are how partition keys begin, in the table and in its indexes.
var kinds = []string{"KEY#", "TENANT#", "T#", "F#", "BR#", "RS#", "U#", "RC#", "KEYS#", "TENANTS", "B#", "DUE#", "DEAD#"}

// delivery is what Step Functions asks for on every resource, to write its log.
const delivery = "CreateLogDelivery GetLogDelivery UpdateLogDelivery DeleteLogDelivery ListLogDeliveries PutResourcePolicy DescribeResourcePolicies DescribeLogGroups"

// A grant that is not told here, and one that is no more, turns this red.
func TestRights(t *testing.T) {
	for _, fault := range faults(statementsOf(t, &account), rights) {
		t.Error(fault)
	}
}

// What the issue asks for, in its own words, of every stack: with and without doors,
// gateway, secrets and VPC.
func TestNobodyBut(t *testing.T) {
	for stack, s := range stacks {
		for name, statements := range statementsOf(t, s) {
			for _, never := range []struct {
				what, action, resource string
				context                map[string][]string
				but                    []string
			}{
				{"read keys", "dynamodb:GetItem", tableARN, under("KEY#9f86d081"), []string{"Api", "Gateway"}},
				{"read keys by the dozen", "dynamodb:BatchGetItem", tableARN, under("KEY#9f86d081"), []string{"Api", "Gateway"}},
				{"look for keys", "dynamodb:Query", tableARN + "/index/tenant", under("KEYS#acme"), []string{"Api"}},
				{"read chunks", "s3:GetObject", "${Results.Arn}/acme/parts/batch_1/00000000/tok-1.jsonl", nil, []string{"Finish"}},
				{"read the upstream's secret", "secretsmanager:GetSecretValue", secretNamed("holdfast/upstream"), nil, []string{"Work", "Gateway"}},
				{"read the secret of the service of jobs", "secretsmanager:GetSecretValue", secretNamed("holdfast/jobs"), nil, []string{"Ingest", "Reap"}},
				{"read any other", "secretsmanager:GetSecretValue", secretNamed("other"), nil, nil},
				{"scan", "dynamodb:Scan", tableARN, nil, nil},
				{"scan an index", "dynamodb:Scan", tableARN + "/index/tenant", nil, nil},
				{"read by PartiQL", "dynamodb:PartiQLSelect", tableARN, nil, nil},
				{"write by PartiQL", "dynamodb:PartiQLUpdate", tableARN, nil, nil},
				{"delete an API key", "dynamodb:DeleteItem", tableARN, under("KEY#9f86d081"), nil},
				{"write a tenant's record", "dynamodb:PutItem", tableARN, under("TENANT#acme"), nil},
				{"delete a receipt of the gateway", "dynamodb:DeleteItem", tableARN, under("RC#acme#batch_1"), nil},
				{"delete a receipts file", "s3:DeleteObject", "${Results.Arn}/acme/out/batch_1_receipts.jsonl", nil, nil},
				{"become another role", "sts:AssumeRole", fmt.Sprintf(arnOf, "iam") + "role/other", nil, nil},
			} {
				if may(statements, asked{never.action, never.resource, never.context}) && !slices.Contains(never.but, name) {
					t.Errorf("%s: %s may %s", stack, name, never.what)
				}
			}
		}
	}
}

// onAll are the grants on every resource, each with its reason in nag.go.
var onAll = map[string][]string{
	"Work": {"states:SendTaskSuccess"}, "Reap": {"states:SendTaskSuccess"}, "Api": {"states:SendTaskSuccess"},
	"Workflow": {
		"logs:CreateLogDelivery", "logs:DeleteLogDelivery", "logs:DescribeLogGroups", "logs:DescribeResourcePolicies", "logs:GetLogDelivery",
		"logs:ListLogDeliveries", "logs:PutResourcePolicy", "logs:UpdateLogDelivery",
	},
}

func TestNoWildcards(t *testing.T) {
	for stack, s := range stacks {
		for name, statements := range statementsOf(t, s) {
			var all []string
			for _, one := range statements {
				for _, action := range one.actions {
					if strings.ContainsAny(action, "*?") {
						t.Errorf("%s: %s may %s", stack, name, action)
					}
				}
				if slices.Contains(one.resources, "*") && !one.deny {
					all = append(all, one.actions...)
				}
			}
			want := onAll[name]
			if s.opts.network.VPC != "" && (name == "Work" || name == "Gateway") {
				want = append(slices.Clone(want), interfaces...)
			}
			slices.Sort(all)
			same(t, stack+": "+name+" on every resource", all, slices.Sorted(slices.Values(want)))
		}
	}
}

// widened are the ways in which a statement may come to grant more.
func widened(s roleStatement) (all []roleStatement) {
	change := func(what func(*roleStatement)) {
		one := roleStatement{s.deny, slices.Clone(s.actions), slices.Clone(s.resources), map[string]map[string][]string{}}
		for operator, keys := range s.conditions {
			one.conditions[operator] = maps.Clone(keys)
		}
		what(&one)
		all = append(all, one)
	}
	for i, action := range s.actions {
		service, _, _ := strings.Cut(action, ":")
		change(func(w *roleStatement) { w.actions[i] = service + ":*" })
	}
	for i, resource := range s.resources {
		if resource != "*" {
			change(func(w *roleStatement) { w.resources[i] = "*" })
			// As far as its first /, and whatever stands behind.
			if bucket, _, ok := strings.Cut(resource, "/"); ok {
				change(func(w *roleStatement) { w.resources[i] = bucket + "/*" })
			}
		}
	}
	for operator, keys := range s.conditions {
		change(func(w *roleStatement) { delete(w.conditions, operator) })
		for key, patterns := range keys {
			if !strings.HasSuffix(operator, "Like") {
				change(func(w *roleStatement) { w.conditions[operator][key] = append(slices.Clone(patterns), "scopes") })
				continue
			}
			for i := range patterns {
				change(func(w *roleStatement) {
					w.conditions[operator][key] = slices.Clone(patterns)
					w.conditions[operator][key][i] = "*"
				})
			}
			for _, kind := range kinds {
				// An index has kinds of its own, and those of the table are none of its.
				if key == itemsOf && !slices.Contains(patterns, kind+"*") && known(s.resources[0], kind) {
					change(func(w *roleStatement) { w.conditions[operator][key] = append(slices.Clone(patterns), kind+"*") })
				}
			}
		}
	}
	return all
}

// known reports whether the table above asks for such items there.
func known(resource, kind string) bool {
	return slices.ContainsFunc(rights, func(p probe) bool {
		return p.resource == resource && len(p.context[itemsOf]) > 0 && strings.HasPrefix(p.context[itemsOf][0], kind)
	})
}

// Whatever widens any statement of any role, the table above sees it: every action
// made a wildcard, every resource, every condition dropped or opened by one kind of
// item, and every statement given to every other role; where that is more than the
// role may do already.
func TestWidenedGrantsAreSeen(t *testing.T) {
	roles := statementsOf(t, &account)
	tried := 0
	unseen := func(what, name, service string, statements []roleStatement) {
		tried++
		if !slices.ContainsFunc(rights, func(p probe) bool {
			if p.service != service {
				return false
			}
			_, _, ok := p.right(name, statements)
			return !ok
		}) {
			t.Errorf("%s: nobody sees %s", name, what)
		}
	}
	for name, statements := range roles {
		for i, s := range statements {
			service, _, _ := strings.Cut(s.actions[0], ":")
			for _, w := range widened(s) {
				if covers(statements, w) {
					continue // another statement of the role grants it already
				}
				changed := slices.Clone(statements)
				changed[i] = w
				unseen(fmt.Sprintf("%v widened to %v", s, w), name, service, changed)
			}
			for other, theirs := range roles {
				if other != name && !covers(theirs, s) {
					unseen(fmt.Sprintf("%v of %s", s, name), other, service, append(slices.Clone(theirs), s))
				}
			}
		}
	}
	t.Logf("%d ways to widen a grant were tried", tried)
	if tried < 500 {
		t.Errorf("only %d ways to widen a grant were tried", tried)
	}
}

package main

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsstepfunctions"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"
	"github.com/cdklabs/cdk-nag-go/cdknag/v2"
)

// suppression is one finding of cdk-nag that stays. A test refuses a finding that
// isn't here, and an entry that no longer suppresses anything.
type suppression struct {
	path   string // of the resource below the stack
	rule   string
	grant  string // for IAM5: the resource with the wildcard
	reason string
}

func suppressions(stack awscdk.Stack, s storage, machine awsstepfunctions.StateMachine, opts options) []suppression {
	const (
		accessLogs = "S3's access logs need a third bucket that holds every tenant's keys and outlives both. " +
			"Who fetched what is in the API's access log and in the receipts; an account that wants S3's own view has CloudTrail's data events."
		inputFiles = "One object for each uploaded file, named when it is uploaded. Other keys of the bucket stay out of reach."
		chunks     = "Keys begin with the tenant: <tenant>/parts/. Result files of the same tenants stay out of reach."
		plans      = "Keys begin with the tenant: <tenant>/plan/. Chunks and result files of the same tenants stay out of reach."
		taskToken  = "SendTaskSuccess only. As for work: the unguessable task token is the capability."
		results    = "Keys begin with the tenant: <tenant>/out/. Chunks of the same tenants stay out of reach."
		drops      = "Keys are for whoever puts the objects to choose, below in/<tenant>/. Other keys of the bucket stay out of reach."
	)
	const networkInterfaces = "Lambda makes and removes them with the function's role, and they have no ids before; " +
		"a statement beside it denies these actions to the function's own code."
	also := ""
	if opts.network.VPC != "" {
		also = " And the network interfaces that Lambda makes for the function in its VPC: " + networkInterfaces
	}
	inputs := "<" + logicalID(stack, s.inputs) + ".Arn>/"
	outputs := "<" + logicalID(stack, s.results) + ".Arn>/"
	runs := "arn:<AWS::Partition>:states:<AWS::Region>:<AWS::AccountId>:execution:<" + logicalID(stack, machine) + ".Name>"
	findings := []suppression{
		{"Inputs/Resource", "AwsSolutions-S1", "", accessLogs},
		{"Results/Resource", "AwsSolutions-S1", "", accessLogs},
		{"ApiRole/DefaultPolicy/Resource", "AwsSolutions-IAM5", inputs + "files/*", inputFiles},
		{"ApiRole/DefaultPolicy/Resource", "AwsSolutions-IAM5", inputs + dropped + "*", drops},
		{"ApiRole/DefaultPolicy/Resource", "AwsSolutions-IAM5", inputs + "uploads/*", "Parts of uploads, named when they arrive. Other keys of the bucket stay out of reach."},
		{"PlanRole/DefaultPolicy/Resource", "AwsSolutions-IAM5", inputs + "files/*", inputFiles},
		{"PlanRole/DefaultPolicy/Resource", "AwsSolutions-IAM5", inputs + dropped + "*", drops},
		{"WorkRole/DefaultPolicy/Resource", "AwsSolutions-IAM5", inputs + "files/*", inputFiles},
		{"WorkRole/DefaultPolicy/Resource", "AwsSolutions-IAM5", inputs + dropped + "*", drops},
		{"FinishRole/DefaultPolicy/Resource", "AwsSolutions-IAM5", inputs + "files/*", inputFiles},
		{"FinishRole/DefaultPolicy/Resource", "AwsSolutions-IAM5", inputs + dropped + "*", drops},
		{"ApiRole/DefaultPolicy/Resource", "AwsSolutions-IAM5", outputs + "*/out/*", results},
		{"ApiRole/DefaultPolicy/Resource", "AwsSolutions-IAM5", outputs + "*/out/*_output.jsonl", results},
		{"ApiRole/DefaultPolicy/Resource", "AwsSolutions-IAM5", outputs + "*/out/*_error.jsonl", results},
		{"FinishRole/DefaultPolicy/Resource", "AwsSolutions-IAM5", outputs + "*/out/*", results},
		{"WorkRole/DefaultPolicy/Resource", "AwsSolutions-IAM5", outputs + "*/parts/*", chunks},
		{"FinishRole/DefaultPolicy/Resource", "AwsSolutions-IAM5", outputs + "*/parts/*", chunks},
		{"FinishRole/DefaultPolicy/Resource", "AwsSolutions-IAM5", outputs + "*/parts/*/finish/*", chunks},
		{"PlanRole/DefaultPolicy/Resource", "AwsSolutions-IAM5", outputs + "*/plan/*", plans},
		{"WorkflowRole/DefaultPolicy/Resource", "AwsSolutions-IAM5", outputs + "*/plan/*", plans},
		{"ApiRole/DefaultPolicy/Resource", "AwsSolutions-IAM5", runs + ":*", "One execution for each batch of this one state machine, named after the batch."},
		{"ReapRole/DefaultPolicy/Resource", "AwsSolutions-IAM5", runs + ":*", "As for the api: executions of this one state machine."},
		{"WorkflowMap/Resource", "AwsSolutions-IAM5", runs + ":*", "As for the api: executions of this one state machine, which its Distributed Map looks after."},
		{"WorkflowMap/Resource", "AwsSolutions-IAM5", runs + "/" + mapLabel + ":*", "One execution for each part of a wide batch; Step Functions names them, below this label."},
		{"WorkRole/DefaultPolicy/Resource", "AwsSolutions-IAM5", "*",
			"SendTaskSuccess. The unguessable task token is the capability, and the child of a " +
				"Distributed Map has another ARN than its state machine." + also},
		{"ReapRole/DefaultPolicy/Resource", "AwsSolutions-IAM5", "*", taskToken},
		{"ApiRole/DefaultPolicy/Resource", "AwsSolutions-IAM5", "*", taskToken},
		{"WorkflowRole/DefaultPolicy/Resource", "AwsSolutions-IAM5", "*",
			"Log delivery only: these actions of CloudWatch Logs know no resource, and Step Functions asks for them all."},
		{"Workflow/Resource", "AwsSolutions-SF2", "",
			"A batch's trace would be hours of waiting for parts that the execution's history and the part's own events tell better, " +
				"and tracing asks for xray rights on everything."},
		{"HttpApi/DefaultRoute/Resource", "AwsSolutions-APIG4", "",
			"The api function checks the key of every request itself: keys are records with tenant and scopes, a refusal has the contract's " +
				"error body, and another tenant's ids are 404."},
	}
	if opts.doors {
		findings = append(findings,
			suppression{"IngestRole/DefaultPolicy/Resource", "AwsSolutions-IAM5", inputs + dropped + "*", drops},
			suppression{"IngestRole/DefaultPolicy/Resource", "AwsSolutions-IAM5", outputs + "*/" + dropped + "*",
				"Keys begin with the tenant: <tenant>/in/, where the error objects lie. Results and chunks of the same tenants stay out of reach."},
			suppression{"IngestRole/DefaultPolicy/Resource", "AwsSolutions-IAM5", runs + ":*", "As for the api: executions of this one state machine."})
	}
	if opts.gateway && opts.network.VPC != "" {
		findings = append(findings, suppression{"GatewayRole/DefaultPolicy/Resource", "AwsSolutions-IAM5", "*", networkInterfaces})
	}
	return findings
}

func (s suppression) suppress(stack awscdk.Stack) {
	one := &cdknag.NagPackSuppression{Id: jsii.String(s.rule), Reason: jsii.String(s.reason)}
	if s.grant != "" {
		one.AppliesTo = &[]any{"Resource::" + s.grant}
	}
	cdknag.NagSuppressions_AddResourceSuppressionsByPath(stack, "/"+*stack.Node().Path()+"/"+s.path,
		&[]*cdknag.NagPackSuppression{one}, jsii.Bool(false))
}

// logicalID is the name of a construct's resource in the template.
func logicalID(stack awscdk.Stack, of constructs.IConstruct) string {
	return *stack.GetLogicalId(of.Node().DefaultChild().(awscdk.CfnElement))
}

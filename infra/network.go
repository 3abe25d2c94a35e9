package main

import (
	"net/netip"
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsec2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslogs"
	"github.com/aws/jsii-runtime-go"

	"holdfast/internal/deploy"
)

// network is the VPC of the functions that call upstreams, work and gateway: that is
// where a private model server can be reached, or the only way out that somebody
// allows. The others call AWS alone, for which no VPC is needed.
type network struct {
	vpc       awsec2.IVpc
	subnets   []*string
	functions awsec2.SecurityGroup // of the functions
	names     map[string]*string   // variables that lead the SDK to the endpoints
}

// variables name the services whose interface endpoints work and gateway use, by
// what the SDK reads to find them. The endpoints take no private DNS names: in a VPC
// of somebody else those would be everybody's, and there may be others that have them.
var variables = map[string]string{
	"sqs":            "AWS_ENDPOINT_URL_SQS",
	"states":         "AWS_ENDPOINT_URL_SFN",
	"secretsmanager": "AWS_ENDPOINT_URL_SECRETS_MANAGER",
}

// newNetwork adds the security group of the functions and the endpoints, and the VPC
// itself if it is to be a new one.
func newNetwork(stack awscdk.Stack, s storage, q queues, opts options) *network {
	n := &network{names: map[string]*string{}}
	var tables []*string
	if opts.network.Own() {
		vpc := newVPC(stack)
		n.vpc = vpc
		for _, subnet := range *vpc.IsolatedSubnets() {
			n.subnets = append(n.subnets, subnet.SubnetId())
			tables = append(tables, subnet.RouteTable().RouteTableId())
		}
	} else {
		n.vpc = awsec2.Vpc_FromVpcAttributes(stack, jsii.String("Vpc"), &awsec2.VpcAttributes{
			VpcId: jsii.String(opts.network.VPC), AvailabilityZones: stack.AvailabilityZones(),
		})
		n.subnets, tables = *jsii.Strings(opts.network.Subnets...), *jsii.Strings(opts.network.RouteTables...)
	}
	n.functions = awsec2.NewSecurityGroup(stack, jsii.String("Callers"), &awsec2.SecurityGroupProps{
		Vpc: n.vpc, AllowAllOutbound: jsii.Bool(false),
		Description: jsii.String("Holdfast: functions that call upstreams"),
	})
	// 443 to anywhere: the addresses of S3 and DynamoDB are a list that only AWS knows.
	n.functions.AddEgressRule(awsec2.Peer_AnyIpv4(), awsec2.Port_Tcp(jsii.Number(443)), jsii.String("AWS, and upstreams by HTTPS"), nil)
	for _, u := range opts.upstreamPorts() {
		peer := awsec2.Peer_AnyIpv4()
		if u.address.IsValid() {
			peer = awsec2.Peer_Ipv4(jsii.String(netip.PrefixFrom(u.address, 32).String()))
		}
		n.functions.AddEgressRule(peer, awsec2.Port_Tcp(jsii.Number(float64(u.port))), jsii.String("An upstream"), nil)
	}
	n.newEndpoints(stack, s, q, opts, tables)
	return n
}

// newVPC is two private subnets and no way out: what there is to reach comes by
// endpoints and by whatever its owner connects it to.
func newVPC(stack awscdk.Stack) awsec2.Vpc {
	vpc := awsec2.NewVpc(stack, jsii.String("Vpc"), &awsec2.VpcProps{
		MaxAzs: jsii.Number(2), NatGateways: jsii.Number(0), CreateInternetGateway: jsii.Bool(false),
		SubnetConfiguration: &[]*awsec2.SubnetConfiguration{{
			Name: jsii.String("Private"), SubnetType: awsec2.SubnetType_PRIVATE_ISOLATED,
		}},
		// By a function of CDK's own; nothing uses that group.
		RestrictDefaultSecurityGroup: jsii.Bool(false),
	})
	// What was turned away, which tells of an upstream on a port that nobody opened.
	role := awsiam.NewRole(stack, jsii.String("FlowsRole"), &awsiam.RoleProps{
		AssumedBy:   awsiam.NewServicePrincipal(jsii.String("vpc-flow-logs.amazonaws.com"), nil),
		Description: jsii.String("Holdfast: the log of connections that the VPC turned away"),
	})
	logs := awslogs.NewLogGroup(stack, jsii.String("FlowsLogs"), &awslogs.LogGroupProps{
		LogGroupName:  logGroupName(stack, "rejected"),
		Retention:     awslogs.RetentionDays_ONE_MONTH,
		RemovalPolicy: awscdk.RemovalPolicy_DESTROY,
	})
	role.AddToPolicy(allow("logs:CreateLogStream", "logs:PutLogEvents", "logs:DescribeLogStreams").on(logs.LogGroupArn()))
	awsec2.NewCfnFlowLog(stack, jsii.String("Flows"), &awsec2.CfnFlowLogProps{
		ResourceId: vpc.VpcId(), ResourceType: jsii.String("VPC"), TrafficType: jsii.String("REJECT"),
		LogDestinationType: jsii.String("cloud-watch-logs"), LogGroupName: logs.LogGroupName(), DeliverLogsPermissionArn: role.RoleArn(),
	})
	return vpc
}

// newEndpoints adds the endpoints that were asked for. Each interface endpoint lets in
// our functions alone, and through it what they do there alone; so do the gateway
// endpoints of a VPC of our own. In somebody else's they serve all that use the route
// tables, and stay open.
func (n *network) newEndpoints(stack awscdk.Stack, s storage, q queues, opts options, tables []*string) {
	bounds := map[string]awsiam.PolicyStatement{
		"sqs":    allow("sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:ChangeMessageVisibility", "sqs:SendMessage").on(q.work.QueueArn()),
		"states": allow("states:SendTaskSuccess").on(jsii.String("*")),
	}
	if opts.network.Own() {
		bounds["s3"] = allow("s3:GetObject", "s3:GetObjectVersion", "s3:PutObject", "s3:PutObjectTagging", "s3:ListBucket").
			on(s.inputs.BucketArn(), jsii.String(*s.inputs.BucketArn()+"/*"), jsii.String(*s.results.BucketArn()+"/*"))
		bounds["dynamodb"] = allow("dynamodb:GetItem", "dynamodb:BatchGetItem", "dynamodb:PutItem", "dynamodb:UpdateItem").on(s.table.TableArn())
	}
	if names := opts.upstreamSecrets(); len(names) > 0 {
		var arns []*string
		for _, name := range names {
			arns = append(arns, secretARN(stack, name))
		}
		bounds["secretsmanager"] = allow("secretsmanager:GetSecretValue").on(arns...)
	}
	var group awsec2.SecurityGroup
	for _, service := range opts.network.Endpoints {
		props := &awsec2.CfnVPCEndpointProps{
			VpcId:       n.vpc.VpcId(),
			ServiceName: awscdk.Fn_Join(jsii.String("."), &[]*string{jsii.String("com.amazonaws"), stack.Region(), jsii.String(service)}),
		}
		if bound := bounds[service]; bound != nil {
			bound.AddAnyPrincipal()
			props.PolicyDocument = awsiam.NewPolicyDocument(&awsiam.PolicyDocumentProps{Statements: &[]awsiam.PolicyStatement{bound}})
		}
		id := "Endpoint" + strings.ToUpper(service[:1]) + service[1:]
		if deploy.Routed(service) {
			props.VpcEndpointType, props.RouteTableIds = jsii.String("Gateway"), values(tables)
			awsec2.NewCfnVPCEndpoint(stack, jsii.String(id), props)
			continue
		}
		if group == nil {
			group = awsec2.NewSecurityGroup(stack, jsii.String("Endpoints"), &awsec2.SecurityGroupProps{
				Vpc: n.vpc, AllowAllOutbound: jsii.Bool(false),
				Description: jsii.String("Holdfast: interface endpoints of AWS services"),
			})
			group.AddIngressRule(n.functions, awsec2.Port_Tcp(jsii.Number(443)), jsii.String("Holdfast's functions"), nil)
		}
		props.VpcEndpointType, props.SubnetIds = jsii.String("Interface"), values(n.subnets)
		props.SecurityGroupIds = &[]any{group.SecurityGroupId()}
		// Bedrock is called by the name that is configured, and only in a VPC of our own.
		props.PrivateDnsEnabled = service == deploy.Bedrock
		endpoint := awsec2.NewCfnVPCEndpoint(stack, jsii.String(id), props)
		if variable := variables[service]; variable != "" {
			// The first of its names, without the zone that stands before it, is for all zones.
			name := awscdk.Fn_Select(jsii.Number(1), awscdk.Fn_Split(jsii.String(":"), awscdk.Fn_Select(jsii.Number(0), endpoint.AttrDnsEntries()), nil))
			n.names[variable] = awscdk.Fn_Join(jsii.String(""), &[]*string{jsii.String("https://"), name})
		}
	}
}

func values(texts []*string) *[]any {
	var all []any
	for _, t := range texts {
		all = append(all, t)
	}
	return &all
}

// take puts the function into the network.
func (n *network) take(stack awscdk.Stack, f function) {
	f.lambda.Node().DefaultChild().(awscdk.CfnResource).AddPropertyOverride(jsii.String("VpcConfig"), map[string]any{
		"SubnetIds": n.subnets, "SecurityGroupIds": []*string{n.functions.SecurityGroupId()},
	})
	for variable, value := range n.names {
		f.lambda.AddEnvironment(jsii.String(variable), value, nil)
	}
	// Lambda makes the function's interfaces with the function's own role, and tells
	// itself from the function's code by the key below: the code may not.
	f.role.AddToPolicy(allow(interfaces...).on(jsii.String("*")))
	denied := awsiam.NewPolicyStatement(&awsiam.PolicyStatementProps{
		Effect: awsiam.Effect_DENY, Actions: jsii.Strings(interfaces...), Resources: jsii.Strings("*"),
		Conditions: &map[string]any{"ArnEquals": map[string]any{"lambda:SourceFunctionArn": f.lambda.FunctionArn()}},
	})
	// A policy of its own: the role's must be there before the function is, and this one
	// names it.
	awsiam.NewPolicy(stack, jsii.String(f.spec.id+"Interfaces"), &awsiam.PolicyProps{
		Roles: &[]awsiam.IRole{f.role}, Statements: &[]awsiam.PolicyStatement{denied},
	})
}

// interfaces is what Lambda documents for functions in a VPC.
var interfaces = []string{
	"ec2:CreateNetworkInterface", "ec2:DescribeNetworkInterfaces", "ec2:DescribeSubnets",
	"ec2:DeleteNetworkInterface", "ec2:AssignPrivateIpAddresses", "ec2:UnassignPrivateIpAddresses",
}

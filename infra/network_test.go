package main

import (
	"slices"
	"strings"
	"testing"

	"holdfast/internal/config"
)

func (s *synthesized) all(resourceType string) map[string]object {
	found := map[string]object{}
	for id, r := range s.resources {
		if r.Type == resourceType {
			found[cut(id)] = r.Properties
		}
	}
	return found
}

// Without context there is nothing of a network.
func TestNoVPCUnlessAsked(t *testing.T) {
	for _, s := range []*synthesized{&account, &local, &shut} {
		for id, r := range s.resources {
			if strings.HasPrefix(r.Type, "AWS::EC2::") || r.Properties["VpcConfig"] != nil {
				t.Errorf("%s %s", r.Type, id)
			}
		}
	}
}

// Only who calls upstreams is in it.
func TestWhoIsInTheVPC(t *testing.T) {
	for _, c := range []struct {
		s       *synthesized
		subnets []string
	}{
		{&own, []string{"${VpcPrivateSubnet1Subnet}", "${VpcPrivateSubnet2Subnet}"}},
		{&placed, []string{"subnet-0aaaaaaa", "subnet-0bbbbbbb"}},
	} {
		for name, f := range c.s.all("AWS::Lambda::Function") {
			in := name == "Work" || name == "Gateway"
			if (f["VpcConfig"] != nil) != in {
				t.Errorf("%s: %v", name, f["VpcConfig"])
			}
			if !in {
				continue
			}
			v := f["VpcConfig"].(object)
			same(t, name, []any{texts(v["SubnetIds"]), texts(v["SecurityGroupIds"])}, []any{c.subnets, []string{"${Callers.GroupId}"}})
		}
		if got := plain(c.s.outputs["CallersSecurityGroupId"].(object)["Value"]); got != "${Callers.GroupId}" {
			t.Errorf("a model server is told to let in %s", got)
		}
	}
}

func TestOwnVPC(t *testing.T) {
	vpc := own.only(t, "AWS::EC2::VPC", "Vpc").Properties
	same(t, "names of endpoints", []any{vpc["EnableDnsSupport"], vpc["EnableDnsHostnames"]}, []any{true, true})
	for _, s := range own.all("AWS::EC2::Subnet") {
		same(t, "public addresses", s["MapPublicIpOnLaunch"], false)
	}
	for _, way := range []string{"NatGateway", "InternetGateway", "Route", "EgressOnlyInternetGateway", "VPCGatewayAttachment", "EIP"} {
		if found := own.all("AWS::EC2::" + way); len(found) != 0 {
			t.Errorf("a way out: %v", found)
		}
	}
	flows := own.only(t, "AWS::EC2::FlowLog", "").Properties
	same(t, "log", []any{plain(flows["ResourceId"]), flows["TrafficType"], plain(flows["LogGroupName"]), plain(flows["DeliverLogsPermissionArn"])},
		[]any{"${Vpc}", "REJECT", "${FlowsLogs}", "${FlowsRole.Arn}"})
	for name := range placed.all("AWS::EC2::VPC") {
		t.Errorf("%s beside one that is there", name)
	}
}

// egress writes a security group's rules out, as to:port.
func egress(group object) (all []string) {
	for _, r := range list(group["SecurityGroupEgress"]) {
		rule := r.(object)
		all = append(all, plain(rule["CidrIp"])+" "+plain(rule["IpProtocol"])+" "+plain(rule["FromPort"])+"-"+plain(rule["ToPort"]))
	}
	return all
}

func TestSecurityGroups(t *testing.T) {
	for _, c := range []struct {
		s    *synthesized
		want []string
	}{
		{&own, []string{"0.0.0.0/0 tcp 443-443", "10.0.0.7/32 tcp 8000-8000", "0.0.0.0/0 tcp 80-80"}},
		{&placed, []string{"0.0.0.0/0 tcp 443-443", "0.0.0.0/0 tcp 8000-8000"}},
	} {
		groups := c.s.all("AWS::EC2::SecurityGroup")
		if len(groups) != 2 {
			t.Errorf("%d security groups", len(groups))
		}
		same(t, "out", egress(groups["Callers"]), c.want)
		same(t, "out of endpoints", egress(groups["Endpoints"]), []string{"255.255.255.255/32 icmp 252-86"}) // CDK's word for nowhere
		for name, g := range groups {
			if g["SecurityGroupIngress"] != nil {
				t.Errorf("%s lets in %v", name, g["SecurityGroupIngress"])
			}
		}
		ingress := c.s.only(t, "AWS::EC2::SecurityGroupIngress", "").Properties
		same(t, "in", []any{plain(ingress["GroupId"]), plain(ingress["SourceSecurityGroupId"]), ingress["IpProtocol"], ingress["FromPort"], ingress["ToPort"]},
			[]any{"${Endpoints.GroupId}", "${Callers.GroupId}", "tcp", 443, 443})
	}
}

func TestEndpoints(t *testing.T) {
	tables := []string{"${VpcPrivateSubnet1RouteTable}", "${VpcPrivateSubnet2RouteTable}"}
	subnets := []string{"${VpcPrivateSubnet1Subnet}", "${VpcPrivateSubnet2Subnet}"}
	const everybody = "Allow * "
	for _, c := range []struct {
		s      *synthesized
		name   string
		tables []string // of a gateway endpoint; else it is an interface
		policy string
		dns    bool
	}{
		{&own, "s3", tables, everybody + "s3:GetObject,s3:GetObjectVersion,s3:PutObject,s3:PutObjectTagging,s3:ListBucket on ${Inputs.Arn},${Inputs.Arn}/*,${Results.Arn}/*", false},
		{&own, "dynamodb", tables, everybody + "dynamodb:GetItem,dynamodb:BatchGetItem,dynamodb:PutItem,dynamodb:UpdateItem on ${Table.Arn}", false},
		{&own, "sqs", nil, everybody + "sqs:ReceiveMessage,sqs:DeleteMessage,sqs:ChangeMessageVisibility,sqs:SendMessage on ${WorkQueue.Arn}", false},
		{&own, "states", nil, everybody + "states:SendTaskSuccess on *", false},
		{&own, "secretsmanager", nil, everybody + strings.TrimPrefix(readsSecret("holdfast/bedrock"), "Allow "), false},
		{&own, "bedrock-runtime", nil, "", true},
		{&placed, "dynamodb", []string{"rtb-0ccccccc"}, "", false}, // others use it too
		{&placed, "sqs", nil, everybody + "sqs:ReceiveMessage,sqs:DeleteMessage,sqs:ChangeMessageVisibility,sqs:SendMessage on ${WorkQueue.Arn}", false},
		{&placed, "states", nil, everybody + "states:SendTaskSuccess on *", false},
	} {
		var e object
		for _, one := range c.s.all("AWS::EC2::VPCEndpoint") {
			if plain(one["ServiceName"]) == "com.amazonaws.${AWS::Region}."+c.name {
				e = one
			}
		}
		if e == nil {
			t.Errorf("no endpoint of %s", c.name)
			continue
		}
		policy := ""
		if e["PolicyDocument"] != nil {
			policy = statements(e["PolicyDocument"])
		}
		same(t, c.name+": policy", policy, c.policy)
		if c.tables != nil {
			same(t, c.name, []any{e["VpcEndpointType"], texts(e["RouteTableIds"]), e["SubnetIds"], e["SecurityGroupIds"], e["PrivateDnsEnabled"]},
				[]any{"Gateway", c.tables, nil, nil, nil})
			continue
		}
		in := subnets
		if c.s == &placed {
			in = []string{"subnet-0aaaaaaa", "subnet-0bbbbbbb"}
		}
		same(t, c.name, []any{e["VpcEndpointType"], texts(e["SubnetIds"]), texts(e["SecurityGroupIds"]), e["RouteTableIds"], e["PrivateDnsEnabled"]},
			[]any{"Interface", in, []string{"${Endpoints.GroupId}"}, nil, c.dns})
	}
	same(t, "endpoints", []int{len(own.all("AWS::EC2::VPCEndpoint")), len(placed.all("AWS::EC2::VPCEndpoint"))}, []int{6, 3})
}

// The interface endpoints have no names but their own: the SDK is told of them.
func TestEndpointsAreUsed(t *testing.T) {
	for _, s := range []*synthesized{&own, &placed} {
		for _, name := range []string{"Work", "Gateway"} {
			given := s.lambda(t, name)["Environment"].(object)["Variables"].(object)
			for service, variable := range variables {
				made := slices.Contains(s.opts.network.Endpoints, service)
				if (given[variable] != nil) != made {
					t.Errorf("%s: %s is %v", name, variable, given[variable])
				}
				id := "Endpoint" + strings.ToUpper(service[:1]) + service[1:]
				if made {
					same(t, variable, given[variable], object{"Fn::Join": []any{"", []any{"https://", object{"Fn::Select": []any{1, object{"Fn::Split": []any{":",
						object{"Fn::Select": []any{0, object{"Fn::GetAtt": []any{id, "DnsEntries"}}}}}}}}}}})
				}
			}
		}
		for variable := range s.lambda(t, "Api")["Environment"].(object)["Variables"].(object) {
			if strings.HasPrefix(variable, "AWS_") {
				t.Errorf("api is given %s", variable)
			}
		}
	}
}

// What an endpoint's policy lets through is enough for all that its callers may do
// at that service: else the role would allow what the network drops.
func TestEndpointsLetThroughWhatRolesAllow(t *testing.T) {
	pass := map[string][]roleStatement{}
	for _, e := range own.all("AWS::EC2::VPCEndpoint") {
		if e["PolicyDocument"] == nil {
			continue
		}
		for _, s := range list(e["PolicyDocument"].(object)["Statement"]) {
			one := roleStatement{actions: texts(s.(object)["Action"]), resources: texts(s.(object)["Resource"])}
			service, _, _ := strings.Cut(one.actions[0], ":")
			pass[service] = append(pass[service], one)
		}
	}
	for name, role := range statementsOf(t, &own) {
		if name != "Work" && name != "Gateway" {
			continue
		}
		for _, s := range role {
			for _, action := range s.actions {
				service, _, _ := strings.Cut(action, ":")
				if service == "logs" || service == "ec2" || action == "sqs:GetQueueAttributes" { // Lambda's, from outside
					continue
				}
				for _, resource := range s.resources {
					if !may(pass[service], asked{action, resource, nil}) {
						t.Errorf("%s may %s on %s, and the endpoint doesn't let it through", name, action, resource)
					}
				}
			}
		}
	}
}

// Lambda makes the functions' network interfaces with their role; their code can't.
func TestInterfacesAreLambdas(t *testing.T) {
	for _, s := range []*synthesized{&own, &placed} {
		roles := statementsOf(t, s)
		for name := range roles {
			for _, action := range interfaces {
				code := map[string][]string{"lambda:SourceFunctionArn": {"${" + name + ".Arn}"}}
				if may(roles[name], asked{action, "*", code}) {
					t.Errorf("%s: its code may %s", name, action)
				}
				if in := name == "Work" || name == "Gateway"; may(roles[name], asked{action, "*", nil}) != in {
					t.Errorf("%s: Lambda may %s: %v", name, action, !in)
				}
			}
		}
	}
}

// A name is at any address; a port that everybody uses is open already.
func TestUpstreamPorts(t *testing.T) {
	o := options{upstream: config.Upstream{URL: "http://a.internal"}}
	for _, u := range []string{"https://b.internal", "https://10.0.0.7:443", "http://10.0.0.7:8000/x", "http://10.0.0.7:8000", "http://[fd00::1]:9000", "http://[::ffff:10.0.0.8]:9000"} {
		o.upstreams = append(o.upstreams, config.Upstream{URL: u})
	}
	var got []string
	for _, p := range o.upstreamPorts() {
		to := "any"
		if p.address.IsValid() {
			to = p.address.String()
		}
		got = append(got, to+":"+plain(float64(p.port)))
	}
	same(t, "ports", got, []string{"any:80", "10.0.0.7:8000", "any:9000", "10.0.0.8:9000"})
}

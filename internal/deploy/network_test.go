package deploy

import (
	"slices"
	"strings"
	"testing"

	"holdfast/internal/config"
)

func TestNetworkContext(t *testing.T) {
	const vpc = "vpc-0123456789abcdef0"
	good := map[string]string{"vpc": vpc, "subnets": "subnet-0aaaaaaa", "routeTables": "rtb-0ccccccc,rtb-0ddddddd"}
	for _, c := range []struct {
		context map[string]string
		secret  string
		want    []string // endpoints; nil: refused
		says    string
	}{
		{good, "", []string{"s3", "dynamodb", "sqs", "states"}, ""},
		{good, "holdfast/upstream", []string{"s3", "dynamodb", "sqs", "states", "secretsmanager"}, ""},
		{map[string]string{"vpc": vpc, "subnets": "subnet-0aaaaaaa", "endpoints": "none"}, "", []string{}, ""},
		{map[string]string{"vpc": vpc, "subnets": "subnet-0aaaaaaa", "endpoints": "states,sqs"}, "", []string{"sqs", "states"}, ""},
		{map[string]string{"vpc": "new"}, "", []string{"s3", "dynamodb", "sqs", "states"}, ""},
		{map[string]string{"vpc": "vpc-Z"}, "", nil, "context vpc=vpc-Z"},
		{map[string]string{"vpc": "new", "subnets": "subnet-0aaaaaaa"}, "", nil, "context subnets=subnet-0aaaaaaa"},
		{map[string]string{"routeTables": "rtb-0ccccccc"}, "", nil, "context routeTables=rtb-0ccccccc"},
		{map[string]string{"endpoints": "none"}, "", nil, "context endpoints=none"},
		{map[string]string{"vpc": vpc, "routeTables": "rtb-0ccccccc"}, "", nil, "context subnets="},
		{map[string]string{"vpc": vpc, "subnets": "subnet-0aaaaaaa"}, "", nil, "context routeTables="},
		{map[string]string{"vpc": vpc, "subnets": "subnet-0aaaaaaa", "endpoints": "dynamodb"}, "", nil, "context routeTables="},
		{map[string]string{"vpc": vpc, "subnets": "subnet-0aaaaaaa", "endpoints": "sqs", "routeTables": "rtb-0ccccccc"}, "", nil, "context routeTables=rtb-0ccccccc"},
		{map[string]string{"vpc": vpc, "subnets": "subnet-0aaaaaaa,subnet-0aaaaaaa", "endpoints": "none"}, "", nil, "subnet-0aaaaaaa"},
		{map[string]string{"vpc": vpc, "subnets": "10.0.0.0/24", "endpoints": "none"}, "", nil, "10.0.0.0/24"},
		{map[string]string{"vpc": vpc, "subnets": "subnet-0aaaaaaa", "endpoints": "logs"}, "", nil, `"logs"`},
		{map[string]string{"vpc": vpc, "subnets": "subnet-0aaaaaaa", "endpoints": "sqs,sqs"}, "", nil, "there once"},
	} {
		n, faults := parseNetwork(vars(c.context), config.Resources{Upstream: config.Upstream{URL: "https://models.example.com", Secret: c.secret}})
		switch {
		case c.want != nil && (len(faults) != 0 || !slices.Equal(n.Endpoints, c.want)):
			t.Errorf("%v: %v, %v", c.context, n.Endpoints, faults)
		case c.want == nil && (len(faults) != 1 || !strings.Contains(faults[0].Error(), c.says)):
			t.Errorf("%v: %v, want one fault that says %s", c.context, faults, c.says)
		}
	}
}

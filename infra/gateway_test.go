package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestGatewayURL(t *testing.T) {
	u := account.only(t, "AWS::Lambda::Url", "Gateway").Properties
	same(t, "URL", []any{u["AuthType"], u["InvokeMode"], plain(u["TargetFunctionArn"]), u["Cors"]}, []any{"NONE", "RESPONSE_STREAM", "${Gateway.Arn}", nil})
	if got := plain(account.outputs["GatewayUrl"].(object)["Value"]); !strings.HasPrefix(got, "${Gateway") || !strings.HasSuffix(got, ".FunctionUrl}") {
		t.Errorf("output %s", got)
	}
	// Both are needed for a URL that is open to all, and neither opens the function but
	// through it.
	var got []string
	for _, r := range account.resources {
		if p := r.Properties; r.Type == "AWS::Lambda::Permission" && p["Principal"] == "*" {
			got = append(got, fmt.Sprint(p["Action"], " ", p["FunctionUrlAuthType"], " ", p["InvokedViaFunctionUrl"]))
		}
	}
	slices.Sort(got)
	same(t, "open to all", got, []string{"lambda:InvokeFunction <nil> true", "lambda:InvokeFunctionUrl NONE <nil>"})
}

func TestGatewayContext(t *testing.T) {
	for id, r := range shut.resources {
		if strings.HasPrefix(id, "Gateway") || r.Type == "AWS::Lambda::Url" {
			t.Errorf("%s %s without a gateway", r.Type, id)
		}
	}
	if shut.outputs["GatewayUrl"] != nil || shut.outputs["GatewayFunctionName"] != nil {
		t.Error("outputs of no gateway")
	}
	same(t, "requests at once", []any{account.lambda(t, "Gateway")["ReservedConcurrentExecutions"], local.lambda(t, "Gateway")["ReservedConcurrentExecutions"]}, []any{nil, 12})
	for _, bad := range []string{"0", "-1", "10001", "yes", "1.5"} {
		if _, err := parseOptions(vars(nil), vars(map[string]string{"gateway": bad})); err == nil || !strings.Contains(err.Error(), "context gateway="+bad) {
			t.Errorf("gateway=%s: %v", bad, err)
		}
	}
}

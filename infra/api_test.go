package main

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestHTTPAPI(t *testing.T) {
	account.has(t, "AWS::ApiGatewayV2::Api", object{"ProtocolType": "HTTP"})
	integration := account.only(t, "AWS::ApiGatewayV2::Integration", "").Properties
	same(t, "integration", []any{integration["IntegrationType"], integration["PayloadFormatVersion"], plain(integration["IntegrationUri"])},
		[]any{"AWS_PROXY", "2.0", "${Api.Arn}"})
	route := account.only(t, "AWS::ApiGatewayV2::Route", "").Properties
	same(t, "route", route["RouteKey"], "$default")
	if got := plain(route["Target"]); got != "integrations/${HttpApiDefaultRouteApi}" {
		t.Errorf("route goes to %s", got)
	}
	stage := account.only(t, "AWS::ApiGatewayV2::Stage", "").Properties
	same(t, "stage", []any{stage["StageName"], stage["AutoDeploy"], stage["DefaultRouteSettings"]},
		[]any{"$default", true, object{"ThrottlingRateLimit": 200, "ThrottlingBurstLimit": 400}})
}

// A line of the access log finds a request and gives nothing of it away.
func TestAccessLog(t *testing.T) {
	settings := account.only(t, "AWS::ApiGatewayV2::Stage", "").Properties["AccessLogSettings"].(object)
	if got := plain(settings["DestinationArn"]); got != "${AccessLogs.Arn}" {
		t.Errorf("logged to %s", got)
	}
	format := settings["Format"].(string)
	var line map[string]string
	if err := json.Unmarshal([]byte(format), &line); err != nil {
		t.Fatalf("%v: %s", err, format)
	}
	if line["request_id"] != "$context.requestId" || line["status"] != "$context.status" {
		t.Errorf("format %s", format)
	}
	for _, secret := range []string{"header", "authorizer", "querystring", "sourceIp", "userAgent"} {
		if strings.Contains(strings.ToLower(format), strings.ToLower(secret)) {
			t.Errorf("logs %s: %s", secret, format)
		}
	}
}

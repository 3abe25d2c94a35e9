package localstack

import (
	"net"
	"os"
	"strings"
	"testing"
)

// script runs one of ours, which needs nothing of a stack, with these variables and
// none of AWS's or ours beside them.
func script(t *testing.T, variables []string, arguments ...string) (string, int) {
	t.Helper()
	var all []string
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "AWS_") || strings.HasPrefix(name, "HOLDFAST_") {
			all = append(all, "-u", name)
		}
	}
	all = append(append(all, "HOLDFAST_LOCAL="+t.TempDir()), variables...)
	return command(t, "env", append(append(all, "bash"), arguments...)...)
}

// What make deploy is given is judged before anything of the stack is built, and all
// of it together.
func TestDeployIsRefusedBeforeItBuilds(t *testing.T) {
	output, status := script(t, []string{
		"HOLDFAST_UPSTREAM_URL=http://127.0.0.1:9", `HOLDFAST_UPSTREAMS=[{"models":["a"],"url":"https://a.example.com","secrett":"b"}]`,
		"HOLDFAST_LEESE=1s", "HOLDFAST_LEASE=1s", "DOORS=ajar", "GATEWAY=0", "VPC=mine", "ALARM_EMAIL=me",
	}, "account.sh")
	if status == 0 {
		t.Error("it ended well")
	}
	for _, want := range []string{
		"HOLDFAST_UPSTREAM_URL: 127.0.0.1: address is refused", `entry 1: "secrett"`, "is HOLDFAST_LEASE meant?", "HOLDFAST_LEASE=1s: must be",
		"doors=ajar (DOORS of make deploy)", "gateway=0", "vpc=mine", "alarmEmail=me",
	} {
		if !strings.Contains(output, want) {
			t.Errorf("doesn't say %q", want)
		}
	}
	for _, never := range []string{"stage functions", "building the functions", "stage tools"} {
		if strings.Contains(output, never) {
			t.Errorf("says %q", never)
		}
	}
	if t.Failed() {
		t.Log(output)
	}
}

// A model server that isn't there is told of, and stops nobody.
func TestNobodyAtTheUpstream(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := server.Addr().String()
	for _, c := range []struct {
		url   string
		there bool
	}{{"http://" + at + "/base", true}, {"", true}, {"http://" + at, false}, {"http://[::1", false}} {
		if !c.there {
			server.Close()
		}
		output, status := script(t, []string{"UPSTREAM_URL=" + c.url}, "model.sh", "look")
		if status != 0 || (output == "") != c.there || strings.Count(output, "\n") > 1 {
			t.Errorf("%s: exit %d, %q", c.url, status, output)
		}
	}
}

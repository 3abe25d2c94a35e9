package localstack

import (
	"net"
	"os"
	"path/filepath"
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

// make up refuses what it would deploy by the name of the variable that was set.
func TestUpIsRefusedByTheNameThatWasSet(t *testing.T) {
	builds, err := filepath.Abs("binaries.sh")
	if err != nil {
		t.Fatal(err)
	}
	if output, status := script(t, nil, builds, "locked", "commands", "holdfast"); status != 0 {
		t.Fatal(output)
	}
	const told = "what UPSTREAM_URL says"
	output, status := script(t, []string{"UPSTREAM_URL=http://127.0.0.1:9/v1"}, "stack.sh", "settings")
	if status == 0 || !strings.Contains(output, "without /v1") || !strings.Contains(output, told) {
		t.Errorf("exit %d, %q", status, output)
	}
	output, status = script(t, []string{"HOLDFAST_LEESE=1s"}, "stack.sh", "settings")
	if status == 0 || !strings.Contains(output, "is HOLDFAST_LEASE meant?") || strings.Contains(output, told) {
		t.Errorf("exit %d, %q", status, output)
	}
	if output, status := script(t, []string{"DOORS=ajar"}, "stack.sh", "settings"); status != 0 {
		t.Errorf("exit %d, %q", status, output)
	}
}

// An event's name may hold a space; none is the function's own.
func TestInvokeNamesOneEvent(t *testing.T) {
	for name, want := range map[string]string{"a b.json": "invoke api 'a b.json'\n", "": "invoke api \n"} {
		if output, status := command(t, "make", "--no-print-directory", "-n", "-C", "..", "invoke-api", "EVENT="+name); status != 0 || !strings.HasSuffix(output, want) {
			t.Errorf("exit %d, %q", status, output)
		}
	}
}

// What no server could listen on is refused by name, before anything is asked of it.
func TestPortsThatAreNone(t *testing.T) {
	for _, c := range []struct{ variables, say string }{
		{"HOLDFAST_PORT=banana", "HOLDFAST_PORT=banana: must be a port"}, {"HOLDFAST_PORT=0", "HOLDFAST_PORT=0: must be"}, {"HOLDFAST_PORT=-1", "HOLDFAST_PORT=-1: must be"},
		{"HOLDFAST_MODEL_PORT=65536", "HOLDFAST_MODEL_PORT=65536: must be"}, {"HOLDFAST_MODEL_PORT=99999999999999999999", "HOLDFAST_MODEL_PORT=99999999999999999999: must be"},
		{"HOLDFAST_PORT=4567", "port 4567 is chosen twice"}, {"HOLDFAST_PORT=65535 HOLDFAST_MODEL_PORT=65535", "port 65535 is chosen twice"},
	} {
		output, status := script(t, strings.Fields(c.variables), "model.sh", "look")
		if status == 0 || !strings.HasPrefix(output, c.say) || strings.Count(output, "\n") != 1 {
			t.Errorf("%s: exit %d, %q", c.variables, status, output)
		}
	}
	for _, variables := range []string{"HOLDFAST_PORT=1 HOLDFAST_MODEL_PORT=65535", "HOLDFAST_PORT= HOLDFAST_MODEL_PORT="} {
		if output, status := script(t, strings.Fields(variables), "model.sh", "look"); status != 0 || output != "" {
			t.Errorf("%s: exit %d, %q", variables, status, output)
		}
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

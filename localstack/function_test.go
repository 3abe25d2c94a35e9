package localstack

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// botocoreOf is a folder with a botocore whose lambda answers with the payload, a
// Python expression in which sent is the event.
func botocoreOf(t *testing.T, payload string) string {
	t.Helper()
	folder := t.TempDir()
	for name, text := range map[string]string{
		"__init__.py": "",
		"config.py":   "def Config(**_): pass\n",
		"session.py": `import io
class Client:
    def invoke(self, FunctionName, Payload, LogType):
        sent = Payload
        return {"Payload": io.BytesIO(` + payload + `)}
class Session:
    def create_client(self, name, config): return Client()
def get_session(): return Session()
`} {
		name = filepath.Join(folder, "botocore", name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// invoked is the output of function.py for an event.
func invoked(t *testing.T, botocore, event string) (string, int) {
	t.Helper()
	outputs, name := filepath.Join(t.TempDir(), "outputs.json"), filepath.Join(t.TempDir(), "event")
	for file, text := range map[string]string{outputs: `{"Holdfast":{"GatewayFunctionName":"f"}}`, name: event} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	output, status := command(t, "env", "PYTHONDONTWRITEBYTECODE=1", "PYTHONPATH="+botocore, "python3", "function.py", "invoke", outputs, "gateway", name)
	return strings.TrimSpace(output), status
}

// Only one JSON object is sent; whoever names something else is told what it should be.
func TestInvokeRefusesWhatIsNoEvent(t *testing.T) {
	botocore := botocoreOf(t, `b"sent " + sent`)
	if output, status := invoked(t, botocore, " {\"a\": 1}\n"); status != 0 || output != `sent  {"a": 1}` {
		t.Errorf("exit %d, %q", status, output)
	}
	const request = `{"custom_id":"1","method":"POST","url":"/v1/chat/completions","body":{}}` + "\n"
	for name, event := range map[string]string{
		"requests": request + request + request, "empty": "", "text": "hello", "array": "[{}]", "string": `"x"`, "null": "null", "binary": "\x89PNG\xff",
		"deep": strings.Repeat("[", 200_000),
	} {
		output, status := invoked(t, botocore, event)
		if status != 1 || !strings.Contains(output, "an event is one JSON object, as in events/*.json. A file of requests is no event") ||
			strings.Contains(output, "Traceback") || strings.Contains(output, "sent ") {
			t.Errorf("%s: exit %d, %s", name, status, output)
		}
	}
	samples, err := filepath.Glob("../events/*.json")
	if err != nil || len(samples) < 20 {
		t.Fatalf("%d samples, %v", len(samples), err)
	}
	for _, sample := range samples {
		text, err := os.ReadFile(sample)
		if err != nil {
			t.Fatal(err)
		}
		if json.Unmarshal(text, new(map[string]any)) != nil {
			t.Errorf("%s is no JSON object", sample)
		}
	}
}

// A streamed answer is a head, eight zero bytes and the body, quoted by the emulator.
func TestInvokeShowsAStream(t *testing.T) {
	for name, payload := range map[string]string{
		"as it is": "b'{\"statusCode\":200}' + bytes(8) + b'{\"answer\": \"\\xc3\\xa9\"}'",
		"quoted":   `__import__("json").dumps('{"statusCode":200}' + chr(0) * 8 + '{"answer": "é"}').encode()`,
	} {
		if output, status := invoked(t, botocoreOf(t, payload), "{}"); status != 0 || output != "{\"statusCode\":200}\n\n{\"answer\": \"é\"}" {
			t.Errorf("%s: exit %d, %q", name, status, output)
		}
	}
	for _, answer := range []string{`{"statusCode":200,"body":"x"}`, `null`, `"a\nb"`, `"`, ``} {
		if output, status := invoked(t, botocoreOf(t, `b"""`+strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(answer)+`"""`), "{}"); status != 0 || output != answer {
			t.Errorf("%q: exit %d, %q", answer, status, output)
		}
	}
}

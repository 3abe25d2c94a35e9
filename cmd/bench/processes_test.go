package main

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

func stackFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"run/emulator.json":      `{"pid": 1, "marker": "ours"}`,
		"run/model.json":         `{"pid": 2, "marker": "model's"}`,
		"run/stack/outputs.json": `{"Holdfast": {"WorkFunctionName": "Holdfast-Work1", "TableName": "t"}}`,
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Processes are told by the marker of their own stack: functions of another one
// have the same names.
func TestProcessesAreTheStacksOwn(t *testing.T) {
	w, err := newWatch(stackFolder(t))
	if err != nil {
		t.Fatal(err)
	}
	w.close()
	for environ, want := range map[string]string{
		"PATH=/\x00LOCAL_AWS_PROCESS=ours\x00":                                       "emulator",
		"LOCAL_AWS_PROCESS=model's\x00":                                              "model",
		"LOCAL_AWS_PROCESS=ours\x00AWS_LAMBDA_FUNCTION_NAME=Holdfast-Work1\x00":      "work",
		"AWS_LAMBDA_FUNCTION_NAME=Holdfast-Work1\x00LOCAL_AWS_PROCESS=ours\x00":      "work",
		"LOCAL_AWS_PROCESS=ours\x00AWS_LAMBDA_FUNCTION_NAME=other\x00":               "emulator",
		"LOCAL_AWS_PROCESS=another's\x00AWS_LAMBDA_FUNCTION_NAME=Holdfast-Work1\x00": "",
		"AWS_LAMBDA_FUNCTION_NAME=Holdfast-Work1\x00":                                "",
		"": "",
	} {
		if got := w.name([]byte(environ)); got != want {
			t.Errorf("%q is %q, want %q", environ, got, want)
		}
	}
}

func TestUsageLeavesOutWhatDidNothing(t *testing.T) {
	w := &watch{seen: map[int]*sight{
		-1: {name: "work", peak: 90, cpu: 50, before: 50}, // of the deploy before
		-2: {name: "work", peak: 10, cpu: 7},
		-3: {name: "work", peak: 20, cpu: 9, before: 4},
	}}
	if got, want := w.usage()["work"], (usage{processes: 2, peak: 20, cpu: 12}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestOwnProcessIsSeen(t *testing.T) {
	if runtime.GOOS != "linux" {
		return // nothing to read there, and the figures are left out
	}
	if _, ok := cpuOf(os.Getpid()); !ok {
		t.Error("no processor time")
	}
	if peak, ok := highWater(os.Getpid()); !ok || peak < 1<<20 {
		t.Errorf("peak of %d bytes", peak)
	}
}

func TestDiskOf(t *testing.T) {
	dir := t.TempDir()
	before, err := diskOf(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "a"), make([]byte, 100_000), 0o600); err != nil {
		t.Fatal(err)
	}
	after, err := diskOf(dir)
	if err != nil || after-before < 100_000 || after-before > 1<<20 {
		t.Errorf("%d bytes more, %v", after-before, err)
	}
}

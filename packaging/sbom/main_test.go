package main

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
)

const module = `{"bomFormat": "CycloneDX", "serialNumber": "urn:uuid:1",
	"metadata": {"timestamp": "2020-01-01T00:00:00Z", "tools": [{"name": "tool", "hashes": ["1"]}],
		"component": {"bom-ref": "main", "name": "example.org/m", "version": "v0.0.0-1"}},
	"components": [{"bom-ref": "std", "name": "std", "version": "go1"},
		{"bom-ref": "a", "name": "a", "version": "v1", "scope": "optional"}, {"bom-ref": "test", "name": "test", "version": "v1"}],
	"dependencies": [{"ref": "main", "dependsOn": ["a", "test"]}, {"ref": "a", "dependsOn": ["test"]}, {"ref": "test"}]}`

const want = `{"bomFormat": "CycloneDX",
	"metadata": {"timestamp": "1970-01-01T00:00:00Z", "tools": [{"name": "tool"}],
		"component": {"bom-ref": "pkg:golang/example.org/m@v1.0.0", "purl": "pkg:golang/example.org/m@v1.0.0?type=module",
			"name": "example.org/m", "version": "v1.0.0"}},
	"components": [{"bom-ref": "std", "name": "std", "version": "go1"},
		{"bom-ref": "a", "name": "a", "version": "v1", "scope": "required"}],
	"dependencies": [{"ref": "pkg:golang/example.org/m@v1.0.0", "dependsOn": ["a"]}, {"ref": "a"}]}`

func decode(t *testing.T, text string) map[string]any {
	t.Helper()
	var doc map[string]any
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

func TestComplete(t *testing.T) {
	doc := decode(t, module)
	if err := complete(doc, "1.0.0", map[string]bool{"a@v1": true}, time.Unix(0, 0).UTC()); err != nil {
		t.Fatal(err)
	}
	if w := decode(t, want); !reflect.DeepEqual(doc, w) {
		t.Errorf("got %v, want %v", doc, w)
	}
	err := complete(decode(t, module), "1.0.0", map[string]bool{"a@v2": true}, time.Unix(0, 0).UTC())
	if err == nil || !strings.Contains(err.Error(), "a@v2") {
		t.Errorf("a module that is not in the document: %v", err)
	}
}

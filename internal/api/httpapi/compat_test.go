package httpapi_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
)

// clientsOf is the API that clients of the previous minor version know. A release copies
// api/openapi.json there.
const clientsOf = "../../../api/openapi-0.1.json"

// TestOlderClientsKeepWorking compares the API with the one of the previous minor version: whatever
// its clients send is still valid, and whatever they read is still there.
func TestOlderClientsKeepWorking(t *testing.T) {
	if *update {
		copyFile(t, "../../../api/openapi.json", clientsOf) // until that version is released
	}
	for _, problem := range incompatible(readDocument(t, clientsOf), readDocument(t, "../../../api/openapi.json")) {
		t.Error(problem)
	}
}

func TestIncompatibleChangesAreFound(t *testing.T) {
	const old = `{"paths": {"/a": {"post": {
		"parameters": [{"name": "all", "in": "query", "schema": {"type": "boolean"}}],
		"requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/In"}}}},
		"responses": {"200": {"content": {"application/json": {"schema": {"type": "array", "items": {"$ref": "#/components/schemas/Out"}}}}}}}}},
		"components": {"schemas": {
		"In": {"type": "object", "properties": {"n": {"type": "integer"}, "mode": {"type": "string", "enum": ["live", "full"]}}, "required": ["n"]},
		"Out": {"type": "object", "properties": {"id": {"type": "string"}}}}}}`
	for change, want := range map[string]string{
		`"/a"=>"/b"`:                             "/a is gone",
		`"post"=>"put"`:                          "POST /a is gone",
		`"name": "all"=>"name":"every"`:          "POST /a: parameter all is gone",
		`"200"=>"202"`:                           "POST /a: answer 200 is gone",
		`{"n": {=>{"m": {`:                       "POST /a: request.n is gone",
		`["n"]=>["n", "mode"]`:                   "POST /a: request.mode is required now",
		`"integer"=>"string"`:                    "POST /a: request.n was integer and is string",
		`"live", "full"=>"live"`:                 "POST /a: request.mode takes full no more",
		`"id"=>"name"`:                           "POST /a: answer 200[].id is gone",
		`"array"=>"object"`:                      "POST /a: answer 200 was array and is object",
		`"live", "full"=>"live", "full", "diff"`: "",
	} {
		from, to, _ := strings.Cut(change, "=>")
		got := incompatible(parseDocument(t, []byte(old)), parseDocument(t, []byte(strings.Replace(old, from, to, 1))))
		if text := strings.Join(got, "\n"); text != want && !(want != "" && strings.Contains(text, want)) {
			t.Errorf("%s: %q, want %q", change, text, want)
		}
	}
}

type node = map[string]any

func readDocument(t *testing.T, name string) node {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return parseDocument(t, b)
}

func parseDocument(t *testing.T, b []byte) (out node) {
	t.Helper()
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// comparison finds changes between two documents that break clients of the older one.
type comparison struct {
	before, now node
	problems    []string
	seen        map[string]bool // pairs of schemas that are compared already
}

func incompatible(before, now node) []string {
	c := &comparison{before: before, now: now, seen: map[string]bool{}}
	paths, nowPaths := sub(before, "paths"), sub(now, "paths")
	for _, p := range sorted(paths) {
		there := sub(nowPaths, p)
		if there == nil {
			c.add("%s is gone", p)
			continue
		}
		for _, method := range sorted(sub(paths, p)) {
			name := strings.ToUpper(method) + " " + p
			if sub(there, method) == nil {
				c.add("%s is gone", name)
				continue
			}
			c.operation(name, sub(sub(paths, p), method), sub(there, method))
		}
	}
	return c.problems
}

func (c *comparison) add(format string, args ...any) {
	c.problems = append(c.problems, fmt.Sprintf(format, args...))
}

func (c *comparison) operation(name string, before, now node) {
	for _, p := range list(before, "parameters") {
		there := slices.IndexFunc(list(now, "parameters"), func(q node) bool {
			return q["name"] == p["name"] && q["in"] == p["in"]
		})
		if there < 0 {
			c.add("%s: parameter %s is gone", name, p["name"])
		}
	}
	for _, kind := range sorted(sub(sub(before, "requestBody"), "content")) {
		c.schema(name+": request", schemaOf(sub(before, "requestBody"), kind), schemaOf(sub(now, "requestBody"), kind), true)
	}
	for _, status := range sorted(sub(before, "responses")) {
		old, there := sub(sub(before, "responses"), status), sub(sub(now, "responses"), status)
		if there == nil && status < "300" {
			c.add("%s: answer %s is gone", name, status)
			continue
		}
		for _, kind := range sorted(sub(old, "content")) {
			c.schema(name+": answer "+status, schemaOf(old, kind), schemaOf(there, kind), false)
		}
	}
}

func schemaOf(body node, kind string) node { return sub(sub(sub(body, "content"), kind), "schema") }

// schema compares a schema of requests, or of answers.
func (c *comparison) schema(at string, before, now node, request bool) {
	if name, ok := before["$ref"].(string); ok {
		key := fmt.Sprint(name, request)
		if c.seen[key] {
			return
		}
		c.seen[key] = true
	}
	before, now = resolve(c.before, before), resolve(c.now, now)
	if now == nil && before != nil {
		c.add("%s has no schema", at)
		return
	}
	if old, is := kindOf(before), kindOf(now); old != "" && old != is {
		c.add("%s was %s and is %s", at, old, is)
		return
	}
	if request {
		c.narrowed(at, before, now)
	}
	for _, field := range sorted(sub(before, "properties")) {
		there := sub(sub(now, "properties"), field)
		if there == nil {
			c.add("%s.%s is gone", at, field)
			continue
		}
		c.schema(at+"."+field, sub(sub(before, "properties"), field), there, request)
	}
	for _, inner := range []string{"items", "additionalProperties"} {
		if old := sub(before, inner); old != nil {
			c.schema(at+"[]", old, sub(now, inner), request)
		}
	}
}

// narrowed finds values of a request that were valid.
func (c *comparison) narrowed(at string, before, now node) {
	for _, field := range texts(now, "required") {
		if !slices.Contains(texts(before, "required"), field) {
			c.add("%s.%s is required now", at, field)
		}
	}
	if now["enum"] == nil {
		return
	}
	for _, value := range texts(before, "enum") {
		if !slices.Contains(texts(now, "enum"), value) {
			c.add("%s takes %s no more", at, value)
		}
	}
}

func resolve(doc, schema node) node {
	if name, ok := schema["$ref"].(string); ok {
		return sub(sub(sub(doc, "components"), "schemas"), path.Base(name))
	}
	return schema
}

// kindOf returns the type of a schema. A value may become nullable.
func kindOf(schema node) string {
	switch k := schema["type"].(type) {
	case string:
		return k
	case []any:
		return fmt.Sprint(k[0])
	}
	return ""
}

func sub(n node, key string) node {
	out, _ := n[key].(node)
	return out
}

func list(n node, key string) (out []node) {
	all, _ := n[key].([]any)
	for _, e := range all {
		if e, ok := e.(node); ok {
			out = append(out, e)
		}
	}
	return out
}

func texts(n node, key string) (out []string) {
	all, _ := n[key].([]any)
	for _, e := range all {
		out = append(out, fmt.Sprint(e))
	}
	return out
}

func sorted(n node) []string { return slices.Sorted(maps.Keys(n)) }

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, b, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

package contract

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/forkd/forkd/api"
)

// operation is an entry of the OpenAPI document.
type operation struct {
	Method, Path string
	Query        map[string]bool
}

// operations reads the OpenAPI document, by operation ID.
func operations(file string) (map[string]operation, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var doc struct {
		Paths map[string]map[string]struct {
			ID         string `json:"operationId"`
			Parameters []struct{ Name, In string }
		}
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		return nil, err
	}
	all := map[string]operation{}
	for path, methods := range doc.Paths {
		for method, o := range methods {
			op := operation{strings.ToUpper(method), path, map[string]bool{}}
			for _, p := range o.Parameters {
				op.Query[p.Name] = p.In == "query"
			}
			all[o.ID] = op
		}
	}
	return all, nil
}

// rest calls the API with plain HTTP requests.
type rest struct {
	url, token string
	ops        map[string]operation
}

func (r rest) Call(ctx context.Context, op string, args map[string]any) (any, error) {
	switch op {
	case "agent.read":
		path := fmt.Sprintf("/v1/sandboxes/%v/agent/files?path=%s", args["id"], query(args["path"]))
		return r.send(ctx, "GET", path, "", nil)
	case "agent.write":
		path := fmt.Sprintf("/v1/sandboxes/%v/agent/files?path=%s", args["id"], query(args["path"]))
		_, err := r.send(ctx, "POST", path, "application/octet-stream", []byte(fmt.Sprint(args["content"])))
		return nil, err
	case "events":
		return r.events(ctx, args)
	case "connect-port-get":
		return r.port(ctx, args)
	case "agent.exec":
		return nil, errNoCall // the Connect protocol is not plain HTTP with JSON
	}
	o, ok := r.ops[op]
	if !ok {
		return nil, fmt.Errorf("unknown operation %q", op)
	}
	path, body := o.fill(args)
	content := "application/json"
	if op == "import-image" || op == "import-snapshot" {
		content, body = "application/x-tar", []byte(fmt.Sprint(args["content"]))
	}
	return r.send(ctx, o.Method, path, content, body)
}

// fill returns the path with its query, and the body.
func (o operation) fill(args map[string]any) (string, []byte) {
	path, q := o.Path, url.Values{}
	var body []byte
	for name, v := range args {
		switch {
		case name == "body":
			body, _ = json.Marshal(v)
		case o.Query[name]:
			if list, ok := v.([]any); ok {
				for _, one := range list {
					q.Add(name, fmt.Sprint(one))
				}
				continue
			}
			q.Set(name, fmt.Sprint(v))
		default:
			path = strings.ReplaceAll(path, "{"+name+"}", url.PathEscape(fmt.Sprint(v)))
		}
	}
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	return path, body
}

func query(v any) string { return url.QueryEscape(fmt.Sprint(v)) }

func (r rest) send(ctx context.Context, method, path, content string, body []byte) (any, error) {
	req, err := http.NewRequestWithContext(ctx, method, r.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if content != "" {
		req.Header.Set("Content-Type", content)
	}
	req.Header.Set("Authorization", "Bearer "+r.token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= 400 {
		return nil, restFailure(resp.StatusCode, answer)
	}
	return restAnswer(method, resp.Header.Get("Content-Type"), answer), nil
}

func restFailure(status int, answer []byte) *Failure {
	var e api.Error
	if json.Unmarshal(answer, &e) != nil || e.Code == "" {
		e = api.Error{Code: api.CodeOf(status), Message: string(answer)}
	}
	return &Failure{Code: string(e.Code), Reason: string(e.Reason), Status: status, Text: e.Message}
}

// restAnswer decodes an answer by its type. Text stays text, and lines of JSON become a list.
func restAnswer(method, content string, answer []byte) any {
	switch {
	case method == http.MethodHead:
		return true
	case len(answer) == 0:
		return nil
	case strings.HasPrefix(content, "application/json"):
		var v any
		if json.Unmarshal(answer, &v) == nil {
			return v
		}
	case strings.HasPrefix(content, "application/x-ndjson"):
		list := []any{}
		for line := range strings.Lines(string(answer)) {
			var v any
			if json.Unmarshal([]byte(line), &v) == nil {
				list = append(list, v)
			}
		}
		return list
	}
	return string(answer)
}

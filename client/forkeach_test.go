package client_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
)

// forkEach forks three children from a server that answers with body.
func forkEach(t *testing.T, kind, body string) (client.ForkResult, []int, error) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		w.Header().Set(api.HeaderPoolReady, "9")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, body)
	}))
	t.Cleanup(s.Close)
	c, err := client.New(client.Options{URL: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var told []int
	res, err := c.ForkEach(t.Context(), api.CreateSandboxesRequest{SnapshotTag: "py"}, func(sb api.SandboxInfo) {
		told = append(told, sb.Index)
	})
	return res, told, err
}

func TestForkEach(t *testing.T) {
	const two, one = `{"child":{"index":2,"id":"b"}}` + "\n", `{"child":{"index":1,"error":"no","code":"no_memory"}}` + "\n"
	t.Run("in the order in which they are ready", func(t *testing.T) {
		res, told, err := forkEach(t, "application/x-ndjson", two+one+`{"fork":{"pool_ready":1,"armed_wall_ms":2,"ready_wall_ms":3.5}}`)
		if err != nil || fmt.Sprint(told) != "[2 1]" || res.Sandboxes[0].Index != 1 || len(res.OK()) != 1 || len(res.Failed()) != 1 ||
			res.PoolReady != 1 || res.ArmedWall.Milliseconds() != 2 || res.ReadyWall.Microseconds() != 3500 {
			t.Errorf("got %+v, told of %v, %v", res, told, err)
		}
	})
	t.Run("none was made", func(t *testing.T) {
		_, told, err := forkEach(t, "application/x-ndjson", one+`{"error":{"error":"no","code":"no_memory"}}`)
		if client.CodeOf(err) != api.CodeNoMemory || len(told) != 1 {
			t.Errorf("told of %v, %v", told, err)
		}
	})
	t.Run("broken off", func(t *testing.T) {
		res, told, err := forkEach(t, "application/x-ndjson", two)
		if client.CodeOf(err) != api.CodeBroken || len(told) != 1 || len(res.Sandboxes) != 1 {
			t.Errorf("got %+v, told of %v, %v", res, told, err)
		}
	})
	t.Run("no JSON", func(t *testing.T) {
		if _, _, err := forkEach(t, "application/x-ndjson", two+"oh"); err == nil || errors.Is(err, client.ErrNoProgram) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a daemon without streams", func(t *testing.T) {
		res, told, err := forkEach(t, "application/json; charset=utf-8", `[{"index":1,"id":"a"},{"index":2,"id":"b"}]`)
		if err != nil || fmt.Sprint(told) != "[1 2]" || len(res.OK()) != 2 || res.PoolReady != 9 {
			t.Errorf("got %+v, told of %v, %v", res, told, err)
		}
	})
}

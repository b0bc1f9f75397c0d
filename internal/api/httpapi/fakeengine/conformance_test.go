package fakeengine_test

import (
	"testing"

	"github.com/forkd/forkd/internal/api/httpapi/fakeengine"
	"github.com/forkd/forkd/internal/engine/enginetest"
)

func TestTheFakeConforms(t *testing.T) {
	e := fakeengine.New(fakeengine.NewImages("python-numpy"))
	defer e.Close()
	enginetest.Run(t, enginetest.Subject{
		Engine: e, Image: "python-numpy", Finish: e.Finish,
		End: func(id string) { e.Fail(id, "it was ended") },
	})
}

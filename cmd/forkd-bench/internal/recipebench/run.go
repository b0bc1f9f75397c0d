package recipebench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/forkd-bench/internal/measure"
)

// Config holds the parameters of the measurement.
type Config struct {
	Client *client.Client
	Works  []Work // one per snapshot to measure
	Rounds int    // forks, and cold starts, of each recipe
	// Say receives progress messages. May be nil.
	Say func(string)
}

// Row holds the figures of one recipe (docs/inside/formats/json-output.md): medians over the rounds.
type Row struct {
	Recipe   string  `json:"recipe"`          // the recipe, and its snapshot
	Rounds   int     `json:"rounds"`          // forks and cold starts, alternating
	ReadyMS  float64 `json:"ready_ms"`        // from the request for a fork to the ready child
	AnswerMS float64 `json:"first_answer_ms"` // from the request for a fork to its first useful answer
	AgainMS  float64 `json:"again_ms"`        // the same question to the same child once more
	ColdMS   float64 `json:"cold_ms"`         // the same answer from a fresh process in a running guest
	Times    float64 `json:"times_faster"`    // ColdMS divided by AnswerMS
}

// limit bounds one answer. An emulated CPU takes minutes to load a model.
const limit = 10 * time.Minute

// settle is the pause before a cold start, in which a new guest finishes its own work.
const settle = 2 * time.Second

// Run measures. It ends its children.
func Run(ctx context.Context, c Config) ([]Row, error) {
	if c.Say == nil {
		c.Say = func(string) {}
	}
	if c.Rounds < 1 {
		return nil, errors.New("want at least one round")
	}
	var rows []Row
	for _, w := range c.Works {
		row, err := c.recipe(ctx, w)
		if err != nil {
			return rows, fmt.Errorf("recipe %s: %w", w.Recipe, err)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// recipe alternates forks with cold starts, so that a slower minute of the host slows both. The first of each
// reads files that are not cached, and does not count.
func (c Config) recipe(ctx context.Context, w Work) (Row, error) {
	var ready, answer, again, cold []float64
	for i := range c.Rounds + 1 {
		c.Say(fmt.Sprintf("%s, round %d of %d", w.Recipe, i, c.Rounds))
		warm, err := c.warm(ctx, w)
		if err != nil {
			return Row{}, err
		}
		took, err := c.cold(ctx, w)
		if err != nil {
			return Row{}, err
		}
		if i > 0 {
			ready, answer, again = append(ready, warm[0]), append(answer, warm[1]), append(again, warm[2])
			cold = append(cold, took)
		}
	}
	row := Row{Recipe: w.Recipe, Rounds: c.Rounds, ReadyMS: measure.Median(ready), AnswerMS: measure.Median(answer),
		AgainMS: measure.Median(again), ColdMS: measure.Median(cold)}
	if row.AnswerMS > 0 {
		row.Times = row.ColdMS / row.AnswerMS
	}
	return row, nil
}

// warm returns the times of a fork: ready, its first answer, and the second answer alone.
func (c Config) warm(ctx context.Context, w Work) (took [3]float64, err error) {
	start := time.Now()
	err = c.child(ctx, w, func(id string) error {
		took[0] = measure.Millis(time.Since(start))
		if err := c.answer(ctx, id, w.Warm, w.Want); err != nil {
			return err
		}
		took[1] = measure.Millis(time.Since(start))
		start = time.Now()
		err := c.answer(ctx, id, w.Warm, w.Want)
		took[2] = measure.Millis(time.Since(start))
		return err
	})
	return took, err
}

// cold returns the time of the same answer from a fresh process in a guest that already runs.
func (c Config) cold(ctx context.Context, w Work) (took float64, err error) {
	err = c.child(ctx, w, func(id string) error {
		if w.Prepare.Exec != nil {
			if err := c.answer(ctx, id, w.Prepare, ""); err != nil {
				return err
			}
		}
		if err := measure.Pause(ctx, settle); err != nil {
			return err
		}
		start := time.Now()
		err := c.answer(ctx, id, w.Cold, w.Want)
		took = measure.Millis(time.Since(start))
		return err
	})
	return took, err
}

// child runs do with a fork, and ends it.
func (c Config) child(ctx context.Context, w Work, do func(id string) error) error {
	res, err := measure.Fork(ctx, c.Client, w.Recipe, 1)
	if err != nil {
		return err
	}
	return errors.Join(do(res.OK()[0].ID), measure.Kill(ctx, c.Client, res.OK()))
}

// answer asks a sandbox. A wrong answer is an error: its time would be of other work.
func (c Config) answer(ctx context.Context, id string, w Way, want string) error {
	got, err := c.ask(ctx, id, w)
	if err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("sandbox %s answers %.200q, want %q", id, got, want)
	}
	return nil
}

func (c Config) ask(ctx context.Context, id string, w Way) (string, error) {
	if w.Eval != "" {
		return measure.Eval(ctx, c.Client, id, w.Eval, limit)
	}
	res, err := c.Client.Exec(ctx, id, api.ExecRequest{Args: w.Exec, TimeoutSecs: limit.Seconds()})
	if err != nil {
		return "", err
	}
	if res.ExitCode != 0 {
		return "", fmt.Errorf("sandbox %s: exit code %d: %.300s", id, res.ExitCode, res.Stderr)
	}
	return strings.TrimSpace(res.Stdout), nil
}

// The driver of river; drivers/common.py tells what a driver is.
//
// InsertManyFast (COPY) in; a client with 2,000 workers, as in the benchmark of its documentation,
// out. River keeps completed jobs for a day; here they are deleted by JobDeleteMany, 10,000 a call,
// and the time until all were worked is told beside the time until they are gone.
package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"
)

const (
	size    = 128
	origins = 100
)

type Args struct {
	O string `json:"o"`
	M string `json:"m"`
}

func (Args) Kind() string { return "bench" }

type worker struct {
	river.WorkerDefaults[Args]
	done *atomic.Int64
	left chan struct{}
	last int64
}

func (w *worker) Work(context.Context, *river.Job[Args]) error {
	if w.done.Add(1) == w.last {
		close(w.left)
	}
	return nil
}

type order struct {
	Do      string  `json:"do"`
	Count   int     `json:"count"`
	Call    int     `json:"call"`
	Clients int     `json:"clients"`
	Workers int     `json:"workers"`
	Rate    float64 `json:"rate"`
	Seconds float64 `json:"seconds"`
	Every   float64 `json:"every"`
	Keep    float64 `json:"keep"`
}

type told map[string]any

// Seconds of processor time that this process has used.
func spent() float64 {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
}

func messages(count int) []Args {
	frame, _ := json.Marshal(Args{O: "origin-000000"})
	width := size - len(frame)
	noise := make([]byte, (width*count+1)/2)
	_, _ = rand.Read(noise)
	text := hex.EncodeToString(noise)
	made := make([]Args, count)
	for i := range made {
		made[i] = Args{O: fmt.Sprintf("origin-%06d", i%origins), M: text[i*width : (i+1)*width]}
	}
	return made
}

func config() *river.Config {
	return &river.Config{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}
}

func bulkIn(ctx context.Context, pool *pgxpool.Pool, o order) (told, error) {
	client, err := river.NewClient(riverpgxv5.New(pool), config())
	if err != nil {
		return nil, err
	}
	if o.Call == 0 {
		o.Call = 1000
	}
	todo := make([]river.InsertManyParams, o.Count)
	for i, args := range messages(o.Count) {
		todo[i] = river.InsertManyParams{Args: args}
	}
	runtime.GC()
	start, before := time.Now(), spent()
	for first := 0; first < len(todo); first += o.Call {
		if _, err := client.InsertManyFast(ctx, todo[first:min(first+o.Call, len(todo))]); err != nil {
			return nil, err
		}
	}
	return told{"seconds": time.Since(start).Seconds(), "client": spent() - before}, nil
}

func singleIn(ctx context.Context, pool *pgxpool.Pool, o order) (told, error) {
	client, err := river.NewClient(riverpgxv5.New(pool), config())
	if err != nil {
		return nil, err
	}
	share := o.Count / o.Clients
	todo := messages(share * o.Clients)
	failed := make(chan error, o.Clients)
	var all sync.WaitGroup
	runtime.GC()
	start, before := time.Now(), spent()
	for number := range o.Clients {
		all.Add(1)
		go func() {
			defer all.Done()
			for _, args := range todo[number*share : (number+1)*share] {
				if _, err := client.Insert(ctx, args, nil); err != nil {
					failed <- err
					return
				}
			}
		}()
	}
	all.Wait()
	seconds, used := time.Since(start).Seconds(), spent()-before
	select {
	case err := <-failed:
		return nil, err
	default:
		return told{"seconds": seconds, "client": used, "count": share * o.Clients}, nil
	}
}

func outAll(ctx context.Context, pool *pgxpool.Pool, o order) (told, error) {
	if o.Workers == 0 {
		o.Workers = 2000
	}
	var done atomic.Int64
	work := &worker{done: &done, left: make(chan struct{}), last: int64(o.Count)}
	settings := config()
	settings.Workers = river.NewWorkers()
	river.AddWorker(settings.Workers, work)
	settings.Queues = map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: o.Workers}}
	settings.FetchCooldown = time.Millisecond
	settings.FetchPollInterval = 20 * time.Millisecond
	client, err := river.NewClient(riverpgxv5.New(pool), settings)
	if err != nil {
		return nil, err
	}
	runtime.GC()
	start := time.Now()
	if err := client.Start(ctx); err != nil {
		return nil, err
	}
	<-work.left
	// Stopping waits until all completions are written.
	if err := client.Stop(ctx); err != nil {
		return nil, err
	}
	acknowledged := time.Since(start).Seconds()
	completed := river.NewJobDeleteManyParams().First(10_000).States(rivertype.JobStateCompleted)
	for {
		result, err := client.JobDeleteMany(ctx, completed)
		if err != nil {
			return nil, err
		}
		if len(result.Jobs) == 0 {
			break
		}
	}
	return told{
		"seconds": time.Since(start).Seconds(), "acknowledged": acknowledged, "count": done.Load(),
	}, nil
}

// What a message is stamped with: microseconds since 1970, as drivers/common.py does.
const stamp = 16

type listener struct {
	river.WorkerDefaults[Args]
	waits []int64
	count int
	lock  sync.Mutex
	left  chan struct{}
}

func (w *listener) Work(_ context.Context, job *river.Job[Args]) error {
	sent, err := strconv.ParseInt(job.Args.M[:stamp], 10, 64)
	if err != nil {
		return err
	}
	w.lock.Lock()
	defer w.lock.Unlock()
	w.waits = append(w.waits, time.Now().UnixMicro()-sent)
	if len(w.waits) == w.count {
		close(w.left)
	}
	return nil
}

// A millisecond is the shortest pause between two fetches that it accepts; a notification starts one.
func work(ctx context.Context, pool *pgxpool.Pool, o order) (told, error) {
	listening := &listener{count: o.Count, left: make(chan struct{})}
	settings := config()
	settings.Workers = river.NewWorkers()
	river.AddWorker(settings.Workers, listening)
	settings.Queues = map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 100}}
	settings.FetchCooldown = time.Millisecond
	client, err := river.NewClient(riverpgxv5.New(pool), settings)
	if err != nil {
		return nil, err
	}
	if err := client.Start(ctx); err != nil {
		return nil, err
	}
	<-listening.left
	return told{"waits": listening.waits}, client.Stop(ctx)
}

// Each client begins a message every so often, or later if the one before it takes longer.
func steady(ctx context.Context, pool *pgxpool.Pool, o order) (told, error) {
	// A client that inserts notifies as rarely as it fetches.
	settings := config()
	settings.FetchCooldown = time.Millisecond
	client, err := river.NewClient(riverpgxv5.New(pool), settings)
	if err != nil {
		return nil, err
	}
	share := o.Count / o.Clients
	todo := messages(share * o.Clients)
	gap := time.Duration(float64(o.Clients) / o.Rate * float64(time.Second))
	failed := make(chan error, o.Clients)
	start := time.Now()
	for number := range o.Clients {
		go func() {
			due := start.Add(gap * time.Duration(number) / time.Duration(o.Clients))
			for _, args := range todo[number*share : (number+1)*share] {
				time.Sleep(time.Until(due))
				args.M = strconv.FormatInt(time.Now().UnixMicro(), 10) + args.M[stamp:]
				if _, err := client.Insert(ctx, args, nil); err != nil {
					failed <- err
					return
				}
				due = due.Add(gap)
			}
			failed <- nil
		}()
	}
	for range o.Clients {
		if err := <-failed; err != nil {
			return nil, err
		}
	}
	return told{"seconds": time.Since(start).Seconds()}, nil
}

func setup(ctx context.Context, pool *pgxpool.Pool) (told, error) {
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err != nil {
		return nil, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, err
	}
	version := "river"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			if module.Path == "github.com/riverqueue/river" {
				version = "river " + module.Version + ", " + runtime.Version()
			}
		}
	}
	return told{"version": version}, nil
}

func obey(ctx context.Context, pool *pgxpool.Pool, o order) (told, error) {
	switch o.Do {
	case "open":
		return told{}, pool.Ping(ctx)
	case "setup":
		return setup(ctx, pool)
	case "bulk_in":
		return bulkIn(ctx, pool, o)
	case "single_in":
		return singleIn(ctx, pool, o)
	case "steady":
		return steady(ctx, pool, o)
	case "work":
		return work(ctx, pool, o)
	case "out_all":
		return outAll(ctx, pool, o)
	case "sustained":
		return sustained(ctx, pool, o)
	}
	return nil, fmt.Errorf("unknown command %q", o.Do)
}

func main() {
	ctx := context.Background()
	settings, err := pgxpool.ParseConfig(os.Getenv("BENCH_DSN"))
	if err != nil {
		panic(err)
	}
	settings.MaxConns = 32
	settings.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
	pool, err := pgxpool.NewWithConfig(ctx, settings)
	if err != nil {
		panic(err)
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var o order
		var answer told
		err := json.Unmarshal(lines.Bytes(), &o)
		if err == nil {
			answer, err = obey(ctx, pool, o)
		}
		if err != nil {
			answer = told{"error": err.Error()}
		}
		text, _ := json.Marshal(answer)
		fmt.Println("= " + string(text))
	}
}

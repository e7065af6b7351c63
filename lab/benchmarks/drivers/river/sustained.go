package main

import (
	"context"
	"fmt"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
)

// The load of drivers/load.py.
const (
	beat          = 20 * time.Millisecond
	behind        = 500 * time.Millisecond
	singleClients = 4
	bulkCall      = 100
	spread        = 10
)

type StampedArgs struct {
	T int64  `json:"t"`
	O string `json:"o"`
	M string `json:"m"`
}

func (StampedArgs) Kind() string { return "stamped" }

var zero = time.Now()

func stamped(number int) StampedArgs {
	return StampedArgs{
		T: int64(time.Since(zero)), O: fmt.Sprintf("origin-%06d", number%origins), M: strings.Repeat("x", 80),
	}
}

type latencies struct {
	river.WorkerDefaults[StampedArgs]
	mutex sync.Mutex
	found []float64
}

func (l *latencies) Work(_ context.Context, job *river.Job[StampedArgs]) error {
	took := float64(int64(time.Since(zero))-job.Args.T) / 1e6
	l.mutex.Lock()
	l.found = append(l.found, took)
	l.mutex.Unlock()
	return nil
}

func (l *latencies) take() []float64 {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	found := l.found
	l.found = nil
	sort.Float64s(found)
	return found
}

// paced sends so many messages a second, at least `least` at a time.
func paced(rate float64, least int, start time.Time, seconds float64, send func(count int) error) error {
	done := 0
	for {
		passed := time.Since(start).Seconds()
		if passed >= seconds {
			return nil
		}
		done = max(done, int((passed-behind.Seconds())*rate))
		count := (int(passed*rate) - done) / least * least
		if count <= 0 {
			time.Sleep(beat)
			continue
		}
		if err := send(count); err != nil {
			return err
		}
		done += count
	}
}

// sustained runs a client with default pauses between fetches, and with completed jobs kept for `keep` seconds.
func sustained(ctx context.Context, pool *pgxpool.Pool, o order) (told, error) {
	work := &latencies{}
	settings := config()
	settings.Workers = river.NewWorkers()
	river.AddWorker(settings.Workers, work)
	settings.Queues = map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 2000}}
	settings.CompletedJobRetentionPeriod = time.Duration(o.Keep * float64(time.Second))
	client, err := river.NewClient(riverpgxv5.New(pool), settings)
	if err != nil {
		return nil, err
	}
	if err := client.Start(ctx); err != nil {
		return nil, err
	}
	start := time.Now()
	var sent atomic.Int64
	failed := make(chan error, singleClients+1)
	for number := range singleClients {
		go func() {
			failed <- paced(float64(o.Rate)/2/singleClients, 1, start, o.Seconds, func(count int) error {
				for range count {
					if _, err := client.Insert(ctx, stamped(number), nil); err != nil {
						return err
					}
					number += singleClients
					sent.Add(1)
				}
				return nil
			})
		}()
	}
	go func() {
		failed <- paced(float64(o.Rate)/2, bulkCall, start, o.Seconds, sendBulk(ctx, client, &sent))
	}()
	windows := watch(work, &sent, start, o)
	for range singleClients + 1 {
		if err := <-failed; err != nil {
			return nil, err
		}
	}
	return told{"windows": windows}, client.Stop(ctx)
}

func sendBulk(ctx context.Context, client *river.Client[pgx.Tx], sent *atomic.Int64) func(int) error {
	first := 0
	return func(count int) error {
		for range count / bulkCall {
			call := make([]river.InsertManyParams, bulkCall)
			for place := range call {
				call[place] = river.InsertManyParams{Args: stamped(first + place*spread/bulkCall)}
			}
			if _, err := client.InsertManyFast(ctx, call); err != nil {
				return err
			}
			first += spread
			sent.Add(bulkCall)
		}
		return nil
	}
}

func watch(work *latencies, sent *atomic.Int64, start time.Time, o order) []told {
	windows := []told{}
	before, last := int64(0), start
	for number := 1; number <= int(o.Seconds/o.Every+0.5); number++ {
		time.Sleep(time.Until(start.Add(time.Duration(float64(number) * o.Every * float64(time.Second)))))
		found, total := work.take(), sent.Load()
		window := told{"at": time.Since(start).Seconds(), "seconds": time.Since(last).Seconds(), "in": total - before, "out": len(found)}
		for name, share := range map[string]float64{"p50": 0.5, "p99": 0.99, "p999": 0.999} {
			window[name] = 0.0
			if len(found) > 0 {
				window[name] = found[int(float64(len(found))*share)]
			}
		}
		windows = append(windows, window)
		before, last = total, time.Now()
	}
	return windows
}

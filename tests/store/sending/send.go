// Go with pgx: the variables PGHOST, PGPORT, PGUSER, PGPASSWORD and PGDATABASE name the database.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

func main() {
	ctx := context.Background()
	connection, err := pgx.Connect(ctx, "")
	check(err)
	defer connection.Close(ctx)
	one := "SELECT airflow_mq.send('default', 'acme', $1, key => $2)"
	var count int

	// One message, with a key: sent again, it is stored once.
	check(connection.QueryRow(ctx, one, []byte("order 17"), "go-17").Scan(&count))
	fmt.Println(count)

	// Many messages, in one transaction with statements of your own.
	check(pgx.BeginFunc(ctx, connection, func(transaction pgx.Tx) error {
		origins, payloads := []string{"acme", "acme"}, [][]byte{[]byte("order 18"), []byte("order 19")}
		many := "SELECT airflow_mq.send_many('default', $1, $2)"
		return transaction.QueryRow(ctx, many, origins, payloads).Scan(&count)
	}))
	fmt.Println(count)

	err = connection.QueryRow(ctx, one, []byte("order 20"), "go-17").Scan(&count)
	var refused *pgconn.PgError
	if !errors.As(err, &refused) || refused.Code != "MQ105" {
		log.Fatal(err)
	}
	fmt.Println(refused.Code) // Another message used the key: nothing was stored.
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

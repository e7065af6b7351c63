// JDBC: java -cp postgresql.jar Send.java
import static java.nio.charset.StandardCharsets.UTF_8;

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.SQLException;

public class Send {
    static int send(Connection connection, String payload, String key) throws SQLException {
        try (PreparedStatement call = connection.prepareStatement(
                "SELECT airflow_mq.send('default', 'acme', ?, key => ?)")) {
            call.setBytes(1, payload.getBytes(UTF_8));
            call.setString(2, key);
            var rows = call.executeQuery();
            rows.next();
            return rows.getInt(1);
        }
    }

    public static void main(String[] arguments) throws SQLException {
        var place = System.getenv();
        var url = "jdbc:postgresql://%s:%s/%s".formatted(place.get("PGHOST"), place.get("PGPORT"), place.get("PGDATABASE"));
        try (Connection connection = DriverManager.getConnection(url, place.get("PGUSER"), place.get("PGPASSWORD"))) {
            // One message, with a key: sent again, it is stored once.
            System.out.println(send(connection, "order 17", "java-17"));

            // Many messages, in one transaction with statements of your own.
            connection.setAutoCommit(false);
            try (PreparedStatement call = connection.prepareStatement("SELECT airflow_mq.send_many('default', ?, ?)")) {
                call.setArray(1, connection.createArrayOf("text", new String[] {"acme", "acme"}));
                call.setArray(2, connection.createArrayOf(
                    "bytea", new byte[][] {"order 18".getBytes(UTF_8), "order 19".getBytes(UTF_8)}));
                var rows = call.executeQuery();
                rows.next();
                System.out.println(rows.getInt(1));
            }
            connection.commit();

            try {
                send(connection, "order 20", "java-17");
            } catch (SQLException error) {
                if (!"MQ105".equals(error.getSQLState())) throw error;
                connection.rollback(); // Another message used the key: nothing was stored.
                System.out.println(error.getSQLState());
            }
        }
    }
}

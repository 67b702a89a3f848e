"""The access directory in SQL. Only this folder knows SQLAlchemy, Alembic and the drivers below them."""
